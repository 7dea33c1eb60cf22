"""Settings of an experiment, from a preset or file and what the command line says on top."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedade.cli.listing import listed
from fedade.core.choices import hint
from fedade.core.errors import FedadeError
from fedade.data.registry import is_own, spec_of
from fedade.experiments.assignments import in_present_words, with_setting
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import Settings, merged, no_such_setting


def settings_with(
    settings: Settings, assignments: list[str] | None, data_dir: Path | None, device: str | None = None
) -> Settings:
    for assignment in assignments or []:
        settings = with_setting(settings, assignment)
    if data_dir is not None:
        settings = merged(settings, {"scenario": {"data_dir": str(data_dir.resolve())}})
    if device is not None:
        settings = merged(settings, {"execution": {"device": device}})
    present = in_present_words(settings)
    refuse_unknown(present)
    return present


def named_settings(
    what: str, assignments: list[str] | None, data_dir: Path | None, device: str | None = None
) -> Settings:
    """Settings of a preset or file, with what the command line says on top."""
    return settings_with(settings_from(what), assignments, data_dir, device)


def refuse_unknown(settings: Mapping[str, Any]) -> None:
    """Refuse a dataset, a model or a method's setting that there is not, before PyTorch is imported.

    Only what is wrong for certain: values, and names that others give a meaning (`folder:PATH`), are checked later.
    """
    scenario = settings.get("scenario")
    dataset, model = (scenario.get(key) if isinstance(scenario, Mapping) else None for key in ("dataset", "model"))
    if dataset and isinstance(dataset, str) and not is_own(dataset):
        spec_of(dataset)
    models = [entry["name"] for entry in listed("models")]
    if model and isinstance(model, str) and ":" not in model and model not in models:
        raise FedadeError(f"unknown model {model!r}{hint(model, models)}")
    known = {entry["name"]: entry["settings"].split(", ") for entry in listed("settings")}
    for method, own in _settings_of_methods(settings):
        for key in own:
            if key not in known.get(method, [key]):
                raise FedadeError(no_such_setting(f"{method}.{key}", key, method, known[method]))


def _settings_of_methods(settings: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = settings.get("methods")
    groups = [settings.get("method"), *(rows if isinstance(rows, Sequence) else ())]
    for group in groups:
        if isinstance(group, Mapping):
            yield from ((str(name), own) for name, own in group.items() if isinstance(own, Mapping))
