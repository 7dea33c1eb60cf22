"""Folders of runs as a runner leaves them while it works, from made-up rows."""

import json
from pathlib import Path

import pyarrow.compute as pc

from fedade.core import storage, trace
from fedade.core.events import CellInfo
from fedade.listeners.stored import StoredCell, by_timestep, stored_cells
from fedade.reporting.results import result

from ..reporting.made_up import made_up_trace

STEPS, CLIENTS = 10, 4


class Cell:
    """One cell of a folder: `folder/cells/ADDRESS`."""

    def __init__(self, folder: Path, method: str = "fed-ade", seed: int = 0, schedule: str = "lin") -> None:
        self.method, self.seed = method, seed
        self.table = made_up_trace(method, seed, schedule, CLIENTS, STEPS)
        storage.write_json(folder / "suite.json", {"suite": "made-up"})
        labels = {"suite": "made-up", "dataset": "digits", "kind": "label", "schedule": schedule, "source": "uniform",
                  "row": method, "method": method, "seed": seed}  # fmt: skip
        settings = {"scenario": {"num_timesteps": STEPS, "corruptions": ["fog"]}, "methods": [method], "seeds": [seed]}
        self.folder, self.path = folder, folder / "cells" / f"{method}-{seed}-{schedule}"
        title = f"{method} {schedule}, seed {seed}"
        storage.write_json(self.path / "cell.json", {"labels": labels, "title": title, "experiment": settings})

    @property
    def stored(self) -> StoredCell:
        return next(one for one in stored_cells(self.folder) if one.info.folder == self.path)

    @property
    def info(self) -> CellInfo:
        return self.stored.info

    @property
    def rows(self) -> dict:
        """By timestep, as a runner tells them."""
        return dict(by_timestep(self.table))

    @property
    def accuracies(self) -> list[tuple[int, float]]:
        return [(step, float(rows["accuracy_post"].mean())) for step, rows in self.rows.items()]

    def write_rows(self, first: int, last: int) -> None:
        within = (pc.field("timestep") >= first) & (pc.field("timestep") <= last)
        trace.write(self.path / f"rows-{first:06d}-{last:06d}.parquet", self.table.filter(within))

    def finish(self) -> dict:
        """As a runner does: the trace first, then the result, then the parts go."""
        trace.write(self.path / "trace.parquet", self.table)
        found = result(self.table, self.method, self.seed, False, 1.5).asdict()
        (self.path / "result.json").write_text(json.dumps({"result": found}))
        for path in self.path.rglob("rows-*.parquet"):
            path.unlink()
        return found

    def fail(self, reason: str) -> None:
        storage.write_json(self.path / "failure.json", {"reason": reason})
