"""`fedade list`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fedade.cli.options import DEFAULT, loading, print_entries
from fedade.core.errors import FedadeError

Entries = list[dict[str, Any]]
ListedKind = Literal["methods", "datasets", "models", "schedules", "measures", "presets", "suites", "settings"]


def list_command(
    kind: Annotated[ListedKind, typer.Argument(help="What to list.")],
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """List what can be named on the command line and in configurations."""
    with loading():
        entries = [*listed(kind), *_installed(kind)]
    print_entries(entries, json_)


STORED = Path(__file__).parent / "listings.json"
"""Listings that only importing PyTorch could tell, which takes seconds. `make golden` writes them again."""


def listed(kind: ListedKind) -> Entries:
    """What there is here of a kind; of methods, their settings, models, measures and suites as it was stored."""
    stored: Entries = json.loads(STORED.read_text()).get(kind) or COMPUTED[kind]()
    return stored


def _installed(kind: ListedKind) -> Entries:
    """What there is in installed packages; a method that cannot be made hides no other, and says why."""
    from fedade.methods import installed_methods

    describe = {"methods": _method, "settings": _settings_of}.get(kind)
    if describe is None:
        return []
    entries = []
    for name in installed_methods():
        try:
            entries.append(describe(name))
        except FedadeError as error:
            typer.echo(f"fedade: {error}", err=True)
    return entries


def _methods() -> Entries:
    from fedade.methods import METHODS

    return [_method(name) for name in METHODS]


def _method(name: str) -> dict[str, Any]:
    from fedade.experiments.settings import build_method

    method = build_method(name, {})
    return {
        "name": name,
        "summary": method.card.summary,
        "source": method.card.paper,
        "oracle": method.card.oracle,
        "rounds": method.has_rounds,
        "reference": method.card.reference,
    }


def _settings() -> Entries:
    from fedade.methods import METHODS

    return [_settings_of(name) for name in METHODS]


def _settings_of(name: str) -> dict[str, Any]:
    from fedade.methods import settings_of

    return {"name": name, "settings": ", ".join(settings_of(name))}


_NAMED_OTHERWISE = {
    "timm:NAME": "a network of timm (extra `timm`)",
    "import:package.module:callable": "yours: from a function of the number of classes; with pretraining none, trained",
    "deployment:FILE": "what fedade.deploy measured, with pretraining none",
    "tiny-llama": "texts: a random Llama of four small layers, for trials (extra `text`)",
    "hf:NAME_OR_PATH": "texts: a causal language model of transformers, with adapters (extra `text`)",
}
"""Models that are not in the registry: made elsewhere, or of texts."""


def _datasets() -> Entries:
    from fedade.data.registry import describe

    return describe()


def _models() -> Entries:
    from fedade.models import MODELS

    ours = {name: (body.__doc__ or "").splitlines()[0] for name, body in MODELS.items()}
    return [{"name": name, "summary": summary} for name, summary in {**ours, **_NAMED_OTHERWISE}.items()]


def _schedules() -> Entries:
    from fedade.maths.schedules import SCHEDULES, VARIANTS

    return [{"name": name, "variants": ", ".join(VARIANTS)} for name in SCHEDULES]


def _measures() -> Entries:
    from fedade.parts.measures import MEASURES

    return [
        {
            "name": name,
            "predictions": measure.prediction.name,
            "features": measure.feature.name,
            "summary": measure.summary,
        }
        for name, measure in MEASURES.items()
    ]


def _presets() -> Entries:
    from fedade.experiments.presets import PRESETS

    told = ("dataset", "kind", "model")
    return [
        {"name": name, "default": name == DEFAULT, **{key: make()["scenario"].get(key) for key in told}}
        for name, make in PRESETS.items()
    ]


def _suites() -> Entries:
    from fedade.experiments.suites import SUITES

    return [
        {"name": suite.name, "summary": suite.summary, "cells": len(suite.cells(suite.seeds))}
        for suite in SUITES.values()
    ]


COMPUTED: Mapping[ListedKind, Callable[[], Entries]] = {
    "methods": _methods,
    "datasets": _datasets,
    "models": _models,
    "schedules": _schedules,
    "measures": _measures,
    "presets": _presets,
    "suites": _suites,
    "settings": _settings,
}
