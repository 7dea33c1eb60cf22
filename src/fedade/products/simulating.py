"""Simulate from Python: what `fedade run` does, with listeners of one's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedade.core import trace
from fedade.core.events import Listener, Listeners
from fedade.experiments.assignments import in_present_words
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import experiment_from, merged
from fedade.products.run_folder import Run, fingerprint, run
from fedade.reporting.results import Result, ResultRow, rows


@dataclass(frozen=True)
class Simulation:
    """What a simulation found; its folder holds the page, the figures and every cell."""

    run: Run

    @property
    def folder(self) -> Path:
        """The folder, which the same call continues or reads again."""
        return self.run.folder

    @property
    def page(self) -> Path:
        """The report page."""
        return self.folder / "report.html"

    @property
    def results(self) -> tuple[Result, ...]:
        """One result per method and seed."""
        return self.run.results

    @property
    def table(self) -> list[ResultRow]:
        """One row per method, over all seeds."""
        return rows(self.run.results)

    @property
    def trace(self) -> pa.Table:
        """One row per method, seed, client and timestep; `.to_pandas()` makes a data frame of it."""
        return trace.read(self.folder / "trace.parquet")

    @property
    def failed(self) -> dict[str, str]:
        """Reasons of the methods and seeds that have no result."""
        return {cell.title: status.reason or "" for cell, status in self.run.failed}


def simulate(
    methods: Sequence[str | Mapping[str, Any]],
    scenario: str | Mapping[str, Any] = "digits-label",
    *,
    seeds: Sequence[int] = (0,),
    listeners: Sequence[Listener] = (),
    out: Path | str | None = None,
    jobs: int = 1,
) -> Simulation:
    """Run methods on drifting clients with hidden labels, or continue where an earlier call stopped.

    `methods` are names, or `{name: settings}`; `scenario` is a preset, a file, or settings as a file would hold them
    (with `preset` to build on one). Listeners hear of every timestep. Without `out` the folder is `runs/NAME-HASH`.

    >>> small = {"num_clients": 4, "num_timesteps": 2, "samples": 10, "pretraining": {"epochs": 1}}
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = simulate(["source", {"tent": {"adaptation_steps": 2}}], {"scenario": small}, out=folder)
    ...     [row.method for row in found.table], len(found.trace)
    (['source', 'tent'], 16)
    """
    named = isinstance(scenario, str)
    settings = settings_from(scenario) if isinstance(scenario, str) else _built_on(scenario)
    named_methods = {**settings, "methods": list(methods), "seeds": list(seeds)}
    experiment = experiment_from(in_present_words(named_methods)).identified()
    name = Path(str(scenario)).stem if named else "simulation"
    folder = Path(out) if out is not None else Path("runs") / f"{name}-{fingerprint(experiment)}"
    return Simulation(run(experiment, folder, Listeners(list(listeners)), jobs))


def _built_on(settings: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in settings.items() if key != "preset"}
    return merged(settings_from(settings["preset"]), rest) if "preset" in settings else rest
