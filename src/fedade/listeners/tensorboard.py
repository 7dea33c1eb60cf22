"""TensorBoard: a log directory per cell, with curves over timesteps, and settings and results as hyperparameters."""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedade.core.events import CellInfo
from fedade.core.importing import OptionalModule
from fedade.listeners.tracker import TrackedCell, flattened

writing: Any = OptionalModule("torch.utils.tensorboard", "tensorboard")
summary: Any = OptionalModule("torch.utils.tensorboard.summary", "tensorboard")
SECONDS_BETWEEN_WRITES = 5
LONGEST_TITLE = 120
"""Characters of a directory's name, besides the address."""


class TensorBoard:
    """Logs below a directory; a record that is opened again is written anew, from the rows on disk."""

    errors: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, folder: Path, out: Path | None = None) -> None:
        self._logs = out or folder / "tensorboard"
        self._new_writer: Callable[..., Any] = writing.SummaryWriter

    def record(self, cell: CellInfo) -> TrackedCell:
        """An empty log of the cell; an earlier one is removed, so that no timestep is there twice."""
        title = re.sub(r"[^\w.=+-]+", "-", cell.title)[:LONGEST_TITLE]
        for earlier in self._logs.glob(f"*-{cell.address}"):
            shutil.rmtree(earlier)
        path = str(self._logs / f"{title}-{cell.address}")
        return _Log(cell, self._new_writer(path, flush_secs=SECONDS_BETWEEN_WRITES))


class _Log:
    def __init__(self, cell: CellInfo, writer: Any) -> None:
        self._cell, self._writer = cell, writer
        self.last = 0

    def write(self, timestep: int, measures: Mapping[str, float]) -> None:
        for name, value in measures.items():
            self._writer.add_scalar(name, value, timestep)
        self.last = timestep

    def end(self, numbers: Mapping[str, float]) -> None:
        named = {f"result/{name}": value for name, value in numbers.items()}
        self.write(self._cell.num_timesteps, named)
        params = flattened(self._cell.settings) | {f"label.{name}": value for name, value in self._cell.labels.items()}
        for part in summary.hparams(params, named):
            self._writer.file_writer.add_summary(part)
        self.close()

    def fail(self, reason: str) -> None:
        self._writer.add_text("failure", reason, self.last)
        self.close()

    def close(self) -> None:
        self._writer.close()
