"""A cell: one method and one seed on one scenario, and the words that name its place in a table."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedade.core import storage
from fedade.core.identity import digest
from fedade.experiments.settings import Experiment, MethodEntry, Settings
from fedade.methods import code_digest
from fedade.reporting.names import BENCHMARKS, METHODS
from fedade.reporting.outcomes import COMMON, Label

if TYPE_CHECKING:
    from fedade.core.method import Method

SCHEMA = 2
"""Part of every address: raised when the same settings would mean another computation, or when what is stored of a cell
would no longer be understood."""


@dataclass(frozen=True)
class Cell:
    """What is run: an experiment of one method and one seed."""

    labels: Mapping[str, Label]
    experiment: Experiment
    title: str
    """One line that tells it from the cells beside it."""
    row_labels: tuple[str, ...] = ()
    """Labels that, besides `row` and `method`, say which row of a table it is in; the others name its scenario."""

    @property
    def method(self) -> str:
        return self.experiment.entry.method

    @property
    def seed(self) -> int:
        return self.experiment.seed

    @cached_property
    def address(self) -> str:
        """A name that two cells share only if they compute the same, whatever their labels and on whatever device."""
        return _named(self._what_is_computed)

    @cached_property
    def batch(self) -> str:
        """A name that cells share which differ in nothing but seed and schedule."""
        computed = {key: value for key, value in self._what_is_computed.items() if key != "seed"}
        scenario = {key: value for key, value in computed["scenario"].items() if key != "schedule"}
        return _named({**computed, "scenario": scenario})

    @cached_property
    def configured(self) -> "Method":
        """The method with its settings; one that replays rates has none yet."""
        return self.experiment.build_method()

    @cached_property
    def lender(self) -> "Cell | None":
        """The cell whose learning rates this one replays: the same settings under the method that it takes them of."""
        lending = self.configured.replays_rates_of
        if lending is None:
            return None
        settings = self.configured.model_dump(mode="json", exclude={"pace", "measured_rates"}, exclude_unset=True)
        entry = MethodEntry(name=METHODS.get(lending, lending), method=lending, settings=settings)
        labels = {**self.labels, "row": entry.name, "method": lending}
        experiment = self.experiment.model_copy(update={"methods": (entry,), "method": {}})
        return Cell(labels, experiment, f"{lending} for {self.title}")

    def computed_on(self, device: str, data_dir: Path | None) -> "Cell":
        there = {} if data_dir is None else {"data_dir": data_dir.resolve()}
        changed = {
            "execution": self.experiment.execution.model_copy(update={"device": device}),
            "scenario": self.experiment.scenario.model_copy(update=there),
        }
        return replace(self, experiment=self.experiment.model_copy(update=changed))

    @cached_property
    def _what_is_computed(self) -> Settings:
        """All settings with their defaults; of the methods' only this one's."""
        identity, written, method = self.experiment.identity(), code_digest(self.method), self.configured
        code = {} if written is None else {"code_digest": written}
        # Where constants are calibrated, those that are set, since the others are found.
        settings = method.model_dump(mode="json", exclude_unset=method.constants == "calibrated")
        return {
            "schema": SCHEMA,
            "scenario": identity["scenario"],
            "protocol": identity["protocol"],
            "method": {"name": self.method, **code, **settings},
            "seed": self.seed,
        }


def _named(content: Settings) -> str:
    return digest(storage.as_json(content))[:16]


def cells_of(experiment: Experiment) -> list[Cell]:
    title = "{}, seed {}" if len(experiment.seeds) > 1 else "{}"
    return [
        Cell(labels_of("run", experiment, entry, seed), experiment.of_one(entry, seed), title.format(entry.name, seed))
        for seed in experiment.seeds
        for entry in experiment.methods
    ]


def labels_of(suite: str, experiment: Experiment, entry: MethodEntry, seed: int) -> dict[str, Label]:
    scenario = experiment.scenario
    dataset = BENCHMARKS.get(scenario.dataset, scenario.dataset)
    values = (suite, dataset, scenario.kind, scenario.schedule, scenario.source, entry.name, entry.method, seed)
    return dict(zip(COMMON, values, strict=True))
