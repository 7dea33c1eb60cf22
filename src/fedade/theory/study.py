"""What the paper's theory says of finished runs: signals, path lengths, regret, bound, ceiling, recovery."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.core.events import Report
from fedade.core.identity import digest
from fedade.core.method import Method
from fedade.core.paths import cache_dir
from fedade.core.seeds import Seeds
from fedade.engine.clock import Federation
from fedade.experiments.settings import Experiment
from fedade.reporting.figures import save
from fedade.reporting.outcomes import Label
from fedade.runner.clocks import build_clock, client_maps
from fedade.scenarios.building import build_testbed
from fedade.theory.measures import measures_of, panel
from fedade.theory.oracle import Oracle, TheorySettings, oracle_of
from fedade.theory.page import regret_over_signal, regret_over_time, theory_markdown
from fedade.theory.replay import replay
from fedade.theory.results import COMPARATORS, TheoryResult, theory_csv

VERSION = 2
"""Part of every stored result's address: raised when the same run would give other numbers."""

SAME_RUN = 0.005
"""Mean difference of accuracies up to which a replay is the run that it follows; another device rounds otherwise."""


class Case(NamedTuple):
    """A finished run, of one or several methods and seeds."""

    labels: Mapping[str, Label]
    """What a suite calls it; `row` is its name in tables."""
    experiment: Experiment
    trace: Path


class _Track(NamedTuple):
    """A method and seed of a case."""

    case: Case
    method: str
    seed: int

    @property
    def title(self) -> str:
        scenario = self.case.experiment.scenario
        return f"{self.method}, {scenario.schedule}, T = {scenario.num_timesteps}, seed {self.seed}"

    def method_with(self, measured_rates: tuple[float, ...] = ()) -> Method:
        """The method with its settings, and rates of another run where it replays some."""
        experiment = self.case.experiment
        entry = next(entry for entry in experiment.methods if entry.method == self.method)
        return experiment.build_method(entry, measured_rates)


def write_theory(
    cases: Sequence[Case],
    folder: Path,
    settings: TheorySettings | None = None,
    report: Report = lambda _title, _done, _of: None,
) -> list[TheoryResult]:
    """theory.csv, theory.md, regret-T.png and regret-S.png of these runs. Losses need the models, which a trace does
    not hold, so every run is replayed, once: its result is kept in `folder/theory` and read from there the next
    time."""
    settings = settings or TheorySettings()
    tracks = []
    for case in cases:
        table = trace.read(case.trace)
        pairs = zip(*(trace.column(table, name).tolist() for name in ("method", "seed")), strict=True)
        tracks += [_Track(case, method, seed) for method, seed in dict.fromkeys(pairs)]
    if not tracks:
        raise FedadeError("theory: there is no finished run to look at; run the suite first")
    oracles: dict[str, Oracle] = {}
    results = []
    for number, track in enumerate(tracks):
        report(track.title, number, len(tracks))
        results.append(_result(track, folder / "theory", settings, oracles))
    report("theory", len(tracks), len(tracks))
    comparator = next(iter(COMPARATORS))
    how = (
        f"Losses on {settings.samples} fresh labelled samples of up to {settings.clients} clients at up to "
        f"{settings.timesteps} timesteps, models as they are {_MOMENTS[settings.moment]} a timestep's adaptation."
    )
    storage.write_bytes(folder / "theory.csv", theory_csv(results).encode())
    storage.write_bytes(folder / "theory.md", theory_markdown(results, comparator, how).encode())
    drawn = {"regret-T": regret_over_time(results, comparator), "regret-S": regret_over_signal(results, comparator)}
    save(drawn, folder)
    return results


_MOMENTS = {"post": "after", "pre": "before"}


def _result(track: _Track, store: Path, settings: TheorySettings, oracles: dict[str, Oracle]) -> TheoryResult:
    scenario = track.case.experiment.scenario
    path = store / f"{_address(track, settings)}.json"
    if path.exists():
        measures = {name: float(value) for name, value in storage.read_json(path).items()}
    else:
        measures = _measure(track, settings, oracles)
        storage.write_json(path, measures)
    labels, row = {"method": track.method, **track.case.labels}, str(track.case.labels.get("row", track.method))
    return TheoryResult(labels, row, track.seed, scenario.schedule, scenario.num_timesteps, measures)


def _address(track: _Track, settings: TheorySettings) -> str:
    """A name that two results share only if they are of the same run and measured alike."""
    experiment = track.case.experiment
    method = track.method_with().model_dump(mode="json")
    run = [VERSION, experiment.scenario.model_dump(mode="json"), experiment.protocol.model_dump(mode="json")]
    text = json.dumps([*run, method, track.method, track.seed, settings.model_dump(mode="json")], sort_keys=True)
    return digest(text.encode(), track.case.trace.read_bytes())


def _measure(track: _Track, settings: TheorySettings, oracles: dict[str, Oracle]) -> dict[str, float]:
    experiment = track.case.experiment
    recorded = panel(trace.read(track.case.trace), track.method, track.seed, experiment.scenario.num_timesteps)
    # Comparators are the same for all methods of a scenario; only the last one's are kept.
    key = json.dumps([experiment.scenario.model_dump_json(), experiment.protocol.model_dump_json(), track.seed])
    if key not in oracles:
        oracles.clear()
        device, precision = experiment.execution.device, experiment.execution.precision
        testbed = build_testbed(experiment.scenario, device, cache_dir(), lambda _done, _of: None, precision)
        scenario = testbed.scenario(experiment.scenario.schedule, track.seed)
        oracles[key] = oracle_of(scenario, track.seed, recorded.clients, settings)
    oracle = oracles[key]
    federation = Federation(oracle.scenario, Seeds(track.seed), track.method_with(_measured_rates(track)))
    with TemporaryDirectory() as states:
        clock = build_clock(experiment, [federation], Path(states))
        probing = client_maps(experiment.execution, oracle.scenario, settings.samples).forward
        seen = replay(replace(clock, score_fresh=False), oracle, probing)
    difference = float(np.abs(recorded.columns["accuracy_post"] - seen.accuracy_post).mean())
    if difference > SAME_RUN:  # what goes another way than its trace must not be mixed with it
        raise FedadeError(
            f"{track.case.trace}: run again, {track.title} differs by {100 * difference:.1f} points of accuracy on "
            "average, so another version or other data wrote it; delete it and run it anew"
        )
    return measures_of(clock, oracle, recorded, seen)


def _measured_rates(track: _Track) -> tuple[float, ...]:
    """The rates of the same seed's Fed-ADE run, for methods that replay them."""
    lending = track.method_with().replays_rates_of
    if lending is None:
        return ()
    rows = trace.where(trace.read(track.case.trace), method=lending, seed=track.seed)
    if not len(rows):
        raise FedadeError(
            f"theory: {track.method} takes its rates from {lending}, which {track.case.trace} does not hold; "
            f"run both together, or leave {track.method} out"
        )
    return tuple(trace.column(rows, "learning_rate").tolist())
