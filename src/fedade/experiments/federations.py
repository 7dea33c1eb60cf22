"""Experiments that differ in seed or schedule only, in one batch: more lanes fill a GPU better."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedade.core.seeds import Seeds
from fedade.engine.clock import Federation
from fedade.engine.track import Place, run_side_by_side, standing
from fedade.experiments.settings import Experiment
from fedade.experiments.tracks import Report, Track, build_clock, method_of, prepared_scenario


class Single(NamedTuple):
    """One method and seed, and the folder of its run."""

    experiment: Experiment
    track: Track
    folder: Path


def run_together(singles: Sequence[Single], device: str, report: Report) -> None:
    """Run or continue tracks of one method whose experiments differ in seed and schedule only.

    A kill can leave them at different timesteps; those that stand at the same one go on together.
    """
    todo = [single for single in singles if not single.track.is_done(single.folder)]
    groups: dict[int, list[Single]] = {}
    for single in todo:
        groups.setdefault(standing(single.track.folder(single.folder)), []).append(single)
    for _, group in sorted(groups.items()):
        _run_group(group, device, report)


def alike(first: Experiment, second: Experiment) -> bool:
    """Whether two experiments can share a batch."""
    return _without_seed_and_schedule(first) == _without_seed_and_schedule(second)


def _without_seed_and_schedule(experiment: Experiment) -> Experiment:
    scenario = experiment.scenario.model_copy(update={"schedule": "lin"})
    return experiment.model_copy(update={"scenario": scenario, "seeds": (0,)})


def _run_group(group: Sequence[Single], device: str, report: Report) -> None:
    first = group[0]
    scenarios = [prepared_scenario(one.experiment, one.track.seed, device) for one in group]
    federations = [
        Federation(scenario, Seeds(one.track.seed), method_of(one.experiment, one.folder, one.track))
        for scenario, one in zip(scenarios, group, strict=True)
    ]
    places = [Place(one.track.folder(one.folder), one.track._asdict()) for one in group]
    clock = build_clock(first.experiment, federations, device, places[0].folder)
    title = first.track.method if len(group) == 1 else f"{first.track.method} x {len(group)}"
    run_side_by_side(clock, places, lambda done: report(title, done, clock.num_timesteps))
