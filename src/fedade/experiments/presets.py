"""Presets by name: functions that return an experiment's settings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedade.core import storage
from fedade.core.errors import FedadeError

Settings = dict[str, Any]


def digits(kind: str) -> Settings:
    """The default: noisy digits, a small network with BatchNorm, a minute on a laptop.

    The network is tiny and each client meets the server about twenty times in all, so rates are a thousand times the
    paper's; chosen on seeds 100 to 102 (docs/decisions/0007-default-run.md).
    """
    return {
        "scenario": {
            "dataset": "digits",
            "kind": kind,
            "model": "small-cnn",
            "train_size": 350,
            "reference_size": 50,
            "samples": 30,
        },
        "federation": {"rounds": 2},
        "method": {"rate": {"low": 5e-3, "mid": 1e-2, "high": 1e-1}, "batch_size": 64},
    }


PRESETS: Mapping[str, Callable[[], Settings]] = {
    "digits-label": lambda: digits("label"),
    "digits-covariate": lambda: digits("covariate"),
    "digits-both": lambda: digits("both"),
    "digits-none": lambda: digits("none"),
}

DEFAULT = "digits-label"


def settings_from(source: str) -> Settings:
    """The settings of a preset, or of a YAML file (which may build on one: `preset: NAME`)."""
    if source in PRESETS:
        return PRESETS[source]()
    path = Path(source)
    if not path.is_file():
        raise FedadeError(f"no preset and no file is called {source!r}; presets: {', '.join(PRESETS)}")
    said = storage.read_yaml(path)
    base = said.pop("preset", None)
    if base is not None and base not in PRESETS:
        raise FedadeError(f"{path}: preset {base!r} is unknown; presets: {', '.join(PRESETS)}")
    return merged(PRESETS[base]() if base else {}, said)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Settings:
    """Two nested settings, the second on top."""
    both = {key: merged(below[key], value) if _groups(below.get(key), value) else value for key, value in above.items()}
    return {**below, **both}


def _groups(first: Any, second: Any) -> bool:
    return isinstance(first, Mapping) and isinstance(second, Mapping)
