"""Where a client's batches come from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core import storage
from fedade.core.deployment import Deployment, Reference
from fedade.core.errors import FedadeError
from fedade.core.importing import import_attribute
from fedade.core.scenario import Streams
from fedade.engine.client import refuse_misshapen
from fedade.flower.settings import FolderStream, StreamSettings

_UNREADABLE = (OSError, ValueError, LookupError, TypeError)
START = ""
"""The cursor before the first batch."""


class Hidden(NamedTuple):
    """What is known of a batch in trials only: for scores and oracles."""

    labels: Tensor
    prior: Tensor
    severity: Tensor


class ClientBatch(NamedTuple):
    """One batch of one client, and where its stream then stands."""

    inputs: Tensor
    cursor: str
    hidden: Hidden | None = None


class BadBatchError(FedadeError):
    """A batch that nobody can adapt to; the stream goes on after it."""

    def __init__(self, reason: str, cursor: str) -> None:
        super().__init__(reason)
        self.cursor = cursor
        """Where the stream stands without the batch."""


class ClientStream(ABC):
    """The batches of one client, one at a time."""

    @abstractmethod
    def take(self, timestep: int, cursor: str) -> ClientBatch | None:
        """The batch after the cursor; None where there is no new one. Raises BadBatchError where it is none."""

    def fresh(self, timestep: int) -> ClientBatch | None:
        """An independent draw of the same timestep, where that exists: real data come once."""
        return None

    def waiting(self, cursor: str) -> int | None:
        """Batches that have come and were not taken; None where nobody knows."""
        return None

    @property
    def answers(self) -> Path | None:
        """Where predictions of batches are wanted; None: nowhere."""
        return None


@dataclass(frozen=True)
class SimulatedStream(ClientStream):
    """A client's part of a scenario: the very batches that the simulator gives it."""

    streams: Streams
    client: int

    def take(self, timestep: int, cursor: str) -> ClientBatch | None:
        return self._draw(timestep, "stream")

    def fresh(self, timestep: int) -> ClientBatch | None:
        return self._draw(timestep, "fresh")

    def _draw(self, timestep: int, purpose: str) -> ClientBatch:
        drawn = self.streams.draw(np.array([self.client]), timestep, purpose)
        inputs, labels, prior, severity = (part[0] for part in drawn.tensors)
        return ClientBatch(inputs, str(timestep), Hidden(labels, prior.float(), severity))


@dataclass(frozen=True)
class Folder(ClientStream):
    """`.npy` files, or `.npz` files with `inputs`, in the order of their names."""

    path: Path

    def take(self, timestep: int, cursor: str) -> ClientBatch | None:
        """The first file whose name comes after the last one taken."""
        names = self._after(cursor)
        return ClientBatch(_read(self.path / min(names)), min(names)) if names else None

    def waiting(self, cursor: str) -> int | None:
        return len(self._after(cursor)) if self.path.is_dir() else None

    @property
    def answers(self) -> Path | None:
        """A folder beside the batches."""
        return self.path / "predictions"

    def _after(self, cursor: str) -> list[str]:
        if not self.path.is_dir():
            raise FedadeError(f"stream folder {self.path} does not exist; make it, or name another in --node-config")
        # Whoever writes a batch renames it into place; what begins with a dot is still being written.
        arrived = (path for path in self.path.iterdir() if path.suffix in (".npy", ".npz") and path.name[0] != ".")
        return [path.name for path in arrived if path.name > cursor]


@dataclass(frozen=True)
class Imported(ClientStream):
    """A function of the client's name and the number of batches taken, which yields the batches after them."""

    function: Callable[[str, int], Iterator[Any]]
    client: str

    def take(self, timestep: int, cursor: str) -> ClientBatch | None:
        taken = int(cursor or 0)
        batch = next(iter(self.function(self.client, taken)), None)
        if batch is None:
            return None
        try:
            return ClientBatch(_inputs(np.asarray(batch)), str(taken + 1))
        except (ValueError, TypeError) as error:
            raise BadBatchError(f"batch {taken + 1} is no array of numbers ({error})", str(taken + 1)) from error


def real_stream(settings: StreamSettings, client: str, elsewhere: str | None) -> ClientStream:
    """The stream of a real client; its node may name another folder than the task."""
    if isinstance(settings, FolderStream):
        return Folder(Path(elsewhere) if elsewhere else settings.path)
    path = str(getattr(settings, "path", ""))
    return Imported(import_attribute(path, f"flower.stream.path: {path}"), client)


def own_labelled(path: Path, deployment: Deployment) -> Reference:
    """A client's own labelled data, from a `.npz` file with `inputs` and `labels` on its host."""
    try:
        with storage.reading_arrays(), np.load(path, allow_pickle=False) as stored:
            inputs, labels = _inputs(stored["inputs"]), torch.from_numpy(stored["labels"].astype(np.int64))
    except _UNREADABLE as error:
        raise FedadeError(
            f"labelled data {path} cannot be read ({error}); expected a .npz file with arrays `inputs` and `labels`"
        ) from error
    refuse_misshapen(inputs, deployment.reference.inputs, f"labelled data {path}", "write the file again")
    if labels.shape != inputs.shape[:1] or int(labels.min()) < 0 or int(labels.max()) >= deployment.num_classes:
        raise FedadeError(
            f"labelled data {path}: labels must be {len(inputs)} class numbers from 0 to {deployment.num_classes - 1}"
        )
    return Reference(inputs, labels)


def _read(path: Path) -> Tensor:
    try:
        with storage.reading_arrays():
            found = np.load(path, allow_pickle=False)
            array = found if isinstance(found, np.ndarray) else found["inputs"]
        return _inputs(array)
    except _UNREADABLE as error:
        raise BadBatchError(
            f"{path} is not a batch ({error}); expected a .npy file, or a .npz file with an array `inputs`", path.name
        ) from error


def _inputs(values: NDArray[Any]) -> Tensor:
    """Pixels stay as they are; other numbers become single precision, as networks compute."""
    inputs = torch.from_numpy(np.ascontiguousarray(values))
    return inputs if inputs.dtype == torch.uint8 else inputs.float()
