"""Who listens to a run besides its progress bar: trackers by name. A new one is one file and one line here."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from fedade.core.errors import FedadeError
from fedade.core.paths import require_folder
from fedade.listeners.mlflow import MLflow
from fedade.listeners.stored import stored_cells
from fedade.listeners.tensorboard import TensorBoard
from fedade.listeners.tracker import Backend, Tracker

TRACKERS: Mapping[str, Callable[[Path, Path | None], Backend]] = {"tensorboard": TensorBoard, "mlflow": MLflow}
"""Each is made with the folder of a run or suite, and a place for its files where that is not the folder."""


def trackers_named(names: Iterable[str], folder: Path) -> list[Tracker]:
    """Listeners that write a run to tracking systems as it goes; `close` them in the end."""
    return [Tracker(_backend(name, folder)) for name in dict.fromkeys(names)]


def export(folder: Path, name: str, out: Path | None = None) -> int:
    """Write all that a folder holds to a tracking system, and return how many cells; again adds what is new."""
    cells = [cell for cell in stored_cells(require_folder(folder)) if cell.state != "waiting"]
    if not cells:
        raise FedadeError(f"{folder} holds no rows yet; there is nothing to export")
    tracker = Tracker(_backend(name, folder, out), strict=True)
    for cell in cells:
        tracker.on_start(cell.info, cell.reached)
        if cell.result is not None:
            tracker.on_end(cell.info, cell.result)
        elif cell.reason is not None:
            tracker.on_failure(cell.info, cell.reason)
    tracker.close()
    return len(cells)


def _backend(name: str, folder: Path, out: Path | None = None) -> Backend:
    if name not in TRACKERS:
        raise FedadeError(f"no tracker is called {name}; choose from {', '.join(TRACKERS)}")
    return TRACKERS[name](folder, out)
