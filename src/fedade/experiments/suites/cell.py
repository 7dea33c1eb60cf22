"""A cell: one method and one seed on one scenario, and the words that name its place in a table."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from fedade.experiments.presets import PRESETS, Settings, merged
from fedade.experiments.settings import Experiment, experiment_from, with_setting
from fedade.reporting.names import BENCHMARKS, METHODS, PAPER_SCHEDULES
from fedade.reporting.outcomes import Label

FORMAT = 1
"""Of a suite's folder, and part of every address: raised when what a cell holds would no longer be understood."""

COMMON = ("suite", "dataset", "kind", "schedule", "source", "row", "method", "seed")
"""Labels that every cell has, in this order; what a suite varies besides comes after them."""

LATER = frozenset({"optimiser", "reference_draws"})
"""Settings of methods that came after the first cells were run: unset, they are no part of an address."""


@dataclass(frozen=True)
class Cell:
    """What is run: an experiment of one method and one seed."""

    labels: Mapping[str, Label]
    experiment: Experiment

    @property
    def method(self) -> str:
        """The method's name in the registry."""
        return self.experiment.methods[0]

    @property
    def seed(self) -> int:
        """The seed."""
        return self.experiment.seeds[0]

    @property
    def replays(self) -> bool:
        """Whether it wants the learning rates of another cell."""
        return bool(getattr(self.experiment.build_method(self.method), "replays", False))

    @property
    def title(self) -> str:
        """One line that tells it from the suite's other cells."""
        place = [str(self.labels[name]) for name in ("dataset", "kind", "source", "schedule", "row")]
        varied = [f"{name} {value}" for name, value in self.labels.items() if name not in COMMON]
        return ", ".join([" ".join(place), *varied, f"seed {self.seed}"])

    @cached_property
    def address(self) -> str:
        """A name that two cells share only if they compute the same, whatever their labels."""
        return _digest(_what_is_computed(self.experiment))

    @cached_property
    def batch(self) -> str:
        """A name that cells share which differ in nothing but seed and schedule."""
        computed = _what_is_computed(self.experiment)
        del computed["seed"], computed["scenario"]["schedule"]
        return _digest(computed)

    def of_method(self, method: str) -> "Cell":
        """The same settings and seed with another method."""
        labels = {**self.labels, "row": METHODS.get(method, method), "method": method}
        return Cell(labels, self.experiment.model_copy(update={"methods": (method,)}))

    def changed(self, assignments: Sequence[str]) -> "Cell":
        """The same cell with `key=value` settings on top."""
        settings = reduce(with_setting, assignments, self.experiment.as_plain())
        return replace(self, experiment=experiment_from(settings))

    def reading_from(self, data_dir: Path) -> "Cell":
        """The same cell with data from a folder."""
        scenario = self.experiment.scenario.model_copy(update={"data_dir": data_dir.resolve()})
        return replace(self, experiment=self.experiment.model_copy(update={"scenario": scenario}))


def _what_is_computed(experiment: Experiment) -> dict[str, Any]:
    """All settings with their defaults; of the method's only those that it has. Where the data lie is no part."""
    plain = experiment.as_plain()
    method = cast("BaseModel", experiment.build_method(experiment.methods[0]))
    fields = type(method).model_fields
    unset = {name for name in LATER & set(fields) if getattr(method, name) == fields[name].default}
    return {
        "format": FORMAT,
        "scenario": {key: value for key, value in plain["scenario"].items() if key != "data_dir"},
        "federation": plain["federation"],
        "method": {"name": experiment.methods[0], **method.model_dump(mode="json", exclude=unset)},
        "seed": experiment.seeds[0],
    }


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Row:
    """A line of a table: its name there, the method, and what is set for it alone."""

    name: str
    method: str
    settings: Settings = field(default_factory=dict)
    labels: Mapping[str, Label] = field(default_factory=dict)


@dataclass(frozen=True)
class Suite:
    """A table or a figure as a list of cells."""

    name: str
    summary: str
    cells: Callable[[Sequence[int]], list[Cell]]
    """The cells of some seeds."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Which seeds, unless others are asked for."""


def grid(
    suite: str,
    presets: Sequence[str],
    rows: Sequence[Row],
    seeds: Sequence[int],
    schedules: Sequence[str] = PAPER_SCHEDULES,
    changes: Settings | None = None,
    varied: Mapping[str, Label] | None = None,
) -> list[Cell]:
    """Every row on every preset, schedule and seed; cells of one scenario are neighbours."""
    return [
        _cell(suite, merged(PRESETS[preset](), changes or {}), schedule, row, seed, varied or {})
        for preset in presets
        for schedule in schedules
        for seed in seeds
        for row in rows
    ]


def _cell(suite: str, below: Settings, schedule: str, row: Row, seed: int, varied: Mapping[str, Label]) -> Cell:
    own = {"scenario": {"schedule": schedule}, "methods": (row.method,), "method": row.settings, "seeds": (seed,)}
    experiment = experiment_from(merged(below, own))
    scenario = experiment.scenario
    common = (
        suite,
        BENCHMARKS.get(scenario.dataset, scenario.dataset),
        scenario.kind,
        schedule,
        scenario.source,
        row.name,
        row.method,
        seed,
    )
    return Cell({**dict(zip(COMMON, common, strict=True)), **row.labels, **varied}, experiment)
