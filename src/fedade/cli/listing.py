"""`fedade list`."""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedade.cli.loading import loading
from fedade.cli.options import DEFAULT
from fedade.cli.tables import print_entries
from fedade.core.errors import FedadeError

Entries = list[dict[str, Any]]


class ListedKind(StrEnum):
    """What can be listed."""

    methods = "methods"
    datasets = "datasets"
    models = "models"
    schedules = "schedules"
    measures = "measures"
    presets = "presets"
    suites = "suites"
    settings = "settings"


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

    describe = {ListedKind.methods: _method, ListedKind.settings: _settings_of}.get(kind)
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
    from fedade.data.inventory import describe

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

    return [{"name": name, "default": name == DEFAULT, **_flat(make())} for name, make in PRESETS.items()]


def _suites() -> Entries:
    from fedade.experiments.suites import SUITES

    return [
        {"name": suite.name, "summary": suite.summary, "cells": len(suite.cells(suite.seeds))}
        for suite in SUITES.values()
    ]


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    scenario = settings["scenario"]
    return {key: scenario.get(key) for key in ("dataset", "kind", "model")}


COMPUTED: Mapping[ListedKind, Callable[[], Entries]] = {
    ListedKind.methods: _methods,
    ListedKind.datasets: _datasets,
    ListedKind.models: _models,
    ListedKind.schedules: _schedules,
    ListedKind.measures: _measures,
    ListedKind.presets: _presets,
    ListedKind.suites: _suites,
    ListedKind.settings: _settings,
}
