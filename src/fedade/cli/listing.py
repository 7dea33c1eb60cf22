"""`fedade list`."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fedade.cli.options import DEFAULT, loading, print_entries

Entries = list[dict[str, Any]]
ListedKind = Literal["methods", "datasets", "models", "schedules", "measures", "presets", "suites", "settings"]


def list_command(
    kind: Annotated[ListedKind, typer.Argument(help="What to list.")],
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """List what can be named on the command line and in configurations."""
    with loading():
        entries = listed(kind)
    print_entries(entries, json_)


STORED = Path(__file__).parent / "listings.json"
"""Listings that only importing PyTorch could tell, which takes seconds. `make golden` writes them again."""


def listed(kind: ListedKind) -> Entries:
    """What there is of a kind; of our own methods, their settings, models, measures and suites as it was stored."""
    from fedade.methods import installed_methods

    stored: Entries = json.loads(STORED.read_text()).get(kind) or COMPUTED[kind]()
    return [*stored, *_methods(installed_methods())] if kind == "methods" else stored


def _methods(names: Iterable[str] | None = None) -> Entries:
    from fedade.methods import METHODS, method_class

    made = {name: method_class(name)() for name in (METHODS if names is None else names)}
    return [
        {
            "name": name,
            "summary": method.card.summary,
            "source": method.card.paper,
            "oracle": method.card.oracle,
            "rounds": method.has_rounds,
            "reference": method.card.reference,
        }
        for name, method in made.items()
    ]


def _settings() -> Entries:
    from fedade.methods import METHODS, settings_of

    return [{"name": name, "settings": ", ".join(settings_of(name))} for name in METHODS]


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
