"""Running a method with several constants on simulated drift, side by side where a device gains by it."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fedade.core.errors import FedadeError
from fedade.core.method import Method
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.core.threads import release_memory
from fedade.core.trace import Rows
from fedade.engine.clock import Federation
from fedade.engine.pending import PendingRows, collect
from fedade.experiments.settings import Experiment
from fedade.runner.clocks import build_clock
from fedade.tuning.drift import SEED


@dataclass(frozen=True)
class TrialRunner:
    """`tuning.trials.RunTrials` as an experiment executes it."""

    experiment: Experiment
    side_by_side: bool
    """Whether methods that differ in their rates alone run as federations of one batch: a GPU has room for all of them,
    and most of what a small federation takes there are launches."""

    def __call__(self, candidates: Sequence[Method], scenario: Scenario) -> Iterator[Rows | FedadeError]:
        first, *others = candidates
        if others and not (self.side_by_side and all(first == one.at_rates(first.rates) for one in others)):
            for one in candidates:
                yield from self([one], scenario)
            return
        try:
            pending = self._run(candidates, scenario)
        except torch.OutOfMemoryError:
            if not others:
                raise
        except FedadeError as error:
            yield from [error] * len(candidates)
            return
        else:
            for number in range(len(candidates)):
                try:
                    yield collect(pending, number)
                except FedadeError as diverged:
                    yield diverged
            return
        release_memory(self.experiment.execution.device)
        half = len(candidates) // 2
        for some in (candidates[:half], candidates[half:]):
            yield from self(some, scenario)

    def _run(self, candidates: Sequence[Method], scenario: Scenario) -> list[PendingRows]:
        federations = [Federation(scenario, Seeds(SEED), candidate) for candidate in candidates]
        with tempfile.TemporaryDirectory() as folder:
            clock = build_clock(self.experiment, federations, Path(folder))
            return list(clock.advance(clock.beginning()))
