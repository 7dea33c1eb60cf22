"""Settings of an experiment, from a preset or file and what the command line says on top."""

from pathlib import Path

from fedade.experiments.assignments import in_present_words, with_setting
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import Settings, merged


def settings_with(
    settings: Settings, assignments: list[str] | None, data_dir: Path | None, device: str | None = None
) -> Settings:
    """Settings with what the command line says on top."""
    for assignment in assignments or []:
        settings = with_setting(settings, assignment)
    if data_dir is not None:
        settings = merged(settings, {"scenario": {"data_dir": str(data_dir.resolve())}})
    if device is not None:
        settings = merged(settings, {"execution": {"device": device}})
    return in_present_words(settings)


def named_settings(
    what: str, assignments: list[str] | None, data_dir: Path | None, device: str | None = None
) -> Settings:
    """Settings of a preset or file, with what the command line says on top."""
    return settings_with(settings_from(what), assignments, data_dir, device)
