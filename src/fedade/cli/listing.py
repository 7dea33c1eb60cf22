"""`fedade list`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fedade.cli.options import DEFAULT, loading, print_entries
from fedade.core.errors import FedadeError
from fedade.core.importing import OptionalModule

# Imported when they are asked for.
corruptions: Any = OptionalModule("fedade.data.corruptions.registry")
datasets: Any = OptionalModule("fedade.data.registry")
measures: Any = OptionalModule("fedade.parts.measures")
methods: Any = OptionalModule("fedade.methods")
models: Any = OptionalModule("fedade.models")
presets: Any = OptionalModule("fedade.experiments.presets")
schedules: Any = OptionalModule("fedade.maths.schedules")
sensors: Any = OptionalModule("fedade.data.sensor_corruptions")
settings: Any = OptionalModule("fedade.experiments.settings")
stream_laws: Any = OptionalModule("fedade.scenarios.stream_laws")
suites: Any = OptionalModule("fedade.experiments.suites")
Entries = list[dict[str, Any]]
ListedKind = Literal[
    "methods", "datasets", "models", "streams", "schedules", "corruptions", "measures", "presets", "suites", "settings"
]


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
    describe = {"methods": _method, "settings": _settings_of}.get(kind)
    if describe is None:
        return []
    entries = []
    for name in methods.installed_methods():
        try:
            entries.append(describe(name))
        except FedadeError as error:
            typer.echo(f"fedade: {error}", err=True)
    return entries


def _method(name: str) -> dict[str, Any]:
    method = settings.build_method(name, {})
    card, rounds = method.card, method.has_rounds
    named = {"name": name, "summary": card.summary, "source": card.paper, "oracle": card.oracle}
    return {**named, "rounds": rounds, "reference": card.reference}


def _settings_of(name: str) -> dict[str, Any]:
    return {"name": name, "settings": ", ".join(methods.settings_of(name))}


_NAMED_OTHERWISE = {
    "timm:NAME": "a network of timm (extra `timm`)",
    "import:package.module:callable": "yours: from a function of the number of classes; with pretraining none, trained",
    "deployment:FILE": "what fedade.deploy measured, with pretraining none",
    "tiny-llama": "texts: a random Llama of four small layers, for trials (extra `text`)",
    "hf:NAME_OR_PATH": "texts: a causal language model of transformers, with adapters (extra `text`)",
}
"""Models that are not in the registry: made elsewhere, or of texts."""


def _models() -> Entries:
    ours = {name: (body.__doc__ or "").splitlines()[0] for name, body in models.MODELS.items()}
    return [{"name": name, "summary": summary} for name, summary in {**ours, **_NAMED_OTHERWISE}.items()]


def _corruptions() -> Entries:
    images = {
        "colour": (corruptions.CORRUPTIONS, corruptions.STANDARD),
        "grey": (sensors.SENSOR_CORRUPTIONS, sensors.SENSOR_STANDARD),
    }
    return [
        {"name": name, "images": kind, "default": name in standard}
        for kind, (known, standard) in images.items()
        for name in known
    ]


def _measure(name: str, measure: Any) -> dict[str, Any]:
    on = {"predictions": measure.prediction.name, "features": measure.feature.name}
    return {"name": name, **on, "summary": measure.summary}


def _preset(name: str, make: Callable[[], Any]) -> dict[str, Any]:
    told = {key: make()["scenario"].get(key) for key in ("dataset", "kind", "model")}
    return {"name": name, "default": name == DEFAULT, **told}


def _suite(suite: Any) -> dict[str, Any]:
    return {"name": suite.name, "summary": suite.summary, "cells": len(suite.cells(suite.seeds))}


COMPUTED: Mapping[ListedKind, Callable[[], Entries]] = {
    "methods": lambda: [_method(name) for name in methods.METHODS],
    "datasets": lambda: datasets.describe(),
    "models": _models,
    "streams": lambda: [
        {"name": name, "summary": (law.__doc__ or "").split("\n\n")[0].replace("\n    ", " ")}
        for name, law in stream_laws.STREAMS.items()
    ],
    "schedules": lambda: [{"name": name, "variants": ", ".join(schedules.VARIANTS)} for name in schedules.SCHEDULES],
    "corruptions": _corruptions,
    "measures": lambda: [_measure(name, measure) for name, measure in measures.MEASURES.items()],
    "presets": lambda: [_preset(name, make) for name, make in presets.PRESETS.items()],
    "suites": lambda: [_suite(suite) for suite in suites.SUITES.values()],
    "settings": lambda: [_settings_of(name) for name in methods.METHODS],
}
