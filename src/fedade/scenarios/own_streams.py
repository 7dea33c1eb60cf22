"""Streams of the user's own data, drifting by the simulator's shifts or recorded as they came."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.core.scenario import Batch, Streams
from fedade.core.seeds import Seeds
from fedade.data.corruptions.registry import corrupt
from fedade.data.sensor_corruptions import corrupt_sensor
from fedade.scenarios.held_out import as_held_out
from fedade.scenarios.settings import Kind, ScenarioSettings
from fedade.scenarios.streams import Floats, Ints, ShiftStreams, client_schedules, initial_priors, target_priors

Corrupting = Callable[[Tensor, int], Tensor]
"""Inputs `[N, ...]` and a severity of 1 to 5 in, corrupted inputs out."""


def shift_schedule(
    name: str, num_timesteps: int, num_clients: int = 1, seed: int = 0, variant: str = "standard"
) -> Floats:
    """ω of every client, `[C, T + 1]`: how far its stream has moved from its first law (0) to its last (1).

    `name` is `lin`, `sin`, `squ` or `ber` (`fedade list schedules`); random ones have a path for each client.

    >>> shift_schedule("lin", num_timesteps=4).tolist()
    [[0.0, 0.25, 0.5, 0.75, 1.0]]
    """
    settings = _settings(schedule=name, num_timesteps=num_timesteps, num_clients=num_clients, variant=variant)
    return np.array(client_schedules(settings, Seeds(seed)))


def dirichlet_priors(num_clients: int, num_classes: int, alpha: float = 0.1, seed: int = 0) -> Floats:
    """Class distributions of clients, `[C, K]`, that differ the more the smaller `alpha` is.

    >>> priors = dirichlet_priors(num_clients=5, num_classes=3)
    >>> priors.shape, bool(np.allclose(priors.sum(1), 1))
    ((5, 3), True)
    """
    return target_priors(_settings(num_clients=num_clients, alpha=alpha), Seeds(seed), num_classes)


def corrupt_images(images: Any, name: str, severity: int, seed: int = 0) -> Tensor:
    """Images `[N, channels, height, width]` of bytes under a corruption of CIFAR-C; grey ones of a grey sensor.

    Severity 0 is clean and 5 is worst. An image's result depends on its pixels, the corruption, severity and seed.

    >>> grey = torch.full((1, 1, 8, 8), 100, dtype=torch.uint8)
    >>> corrupt_images(grey, "bright", severity=5)[0, 0, 0, 0].item()
    202
    """
    pixels = np.asarray(images)
    if pixels.ndim != 4 or pixels.dtype != np.uint8:
        raise FedadeError(
            f"images to corrupt are {pixels.dtype} {list(pixels.shape)}; pass uint8 [N, channels, height, width]"
        )
    if pixels.shape[1] == 1:
        return torch.from_numpy(corrupt_sensor(pixels, name, severity, seed))
    seen = corrupt(np.ascontiguousarray(np.moveaxis(pixels, 1, -1)), name, severity, seed)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(seen, -1, 1)))


def drifting_streams(
    inputs: Any,
    labels: Any,
    *,
    kind: Kind = "label",
    schedule: str | Any = "lin",
    num_clients: int = 20,
    num_timesteps: int = 50,
    samples: int = 32,
    alpha: float = 0.1,
    last_priors: Any = None,
    corruptions: Sequence[str | Corrupting] = (),
    seed: int = 0,
) -> Streams:
    """Streams of clients that draw from labelled data, whose classes or inputs drift, or both.

    `kind` is label, covariate, both or none. `schedule` is a name, or an array `[T + 1]` or `[C, T + 1]` of your own
    (`shift_schedule`). Classes drift from even to `last_priors`, `[C, K]` (by default `dirichlet_priors`); inputs
    under `corruptions`, one per client in turn: names of `corrupt_images`, or functions of inputs and a severity.

    >>> rows, classes = torch.rand(60, 4), torch.arange(60) % 3
    >>> streams = drifting_streams(rows, classes, num_clients=2, num_timesteps=5, samples=8)
    >>> streams.draw(np.arange(2), timestep=5).inputs.shape
    torch.Size([2, 8, 4])
    """
    pool, classes = as_held_out((inputs, labels))
    num_classes, seeds = int(classes.max()) + 1, Seeds(seed)
    if missing := set(range(num_classes)) - set(classes.tolist()):
        raise FedadeError(f"class {min(missing)} has no example to stream; add some, or number the classes from 0")
    if kind in ("covariate", "both") and not corruptions:
        raise FedadeError(
            f"kind {kind} needs corruptions: names for corrupt_images, or functions of inputs and severity"
        )
    if kind in ("label", "none") and corruptions:
        raise FedadeError(f"kind {kind} has no use for corruptions; pass kind='covariate' or kind='both'")
    for name in corruptions:
        if isinstance(name, str):
            corrupt_images(pool[:1].cpu(), name, severity=1)  # what cannot be is refused before the first batch
        elif not callable(name):
            raise FedadeError(f"corruption {name!r} is neither a name nor a function of inputs and a severity")
    settings = _settings(kind=kind, num_clients=num_clients, num_timesteps=num_timesteps, samples=samples, alpha=alpha)
    if isinstance(schedule, str):
        weights = shift_schedule(schedule, num_timesteps, num_clients, seed)
    else:
        weights = _own_array("schedule", schedule, (num_clients, num_timesteps + 1))
    if last_priors is None:
        last = target_priors(settings, seeds, num_classes)
    else:
        last = _own_array("last_priors", last_priors, (num_clients, num_classes))
        if not np.allclose(last.sum(1), 1, atol=1e-3):
            raise FedadeError(f"last_priors sum to {last.sum(1)[0]:.4g}; each client's class frequencies sum to 1")
        last = last / last.sum(1, keepdims=True)
    return ShiftStreams(
        settings=settings,
        seeds=seeds,
        pool_at=_pools(pool, corruptions),
        rows_by_class=tuple(np.flatnonzero(classes.cpu().numpy() == label) for label in range(num_classes)),
        initial_priors=initial_priors(settings, seeds, num_classes),
        target_priors=last,
        schedule=weights,
        corruptions=tuple(map(str, range(max(1, len(corruptions))))),
        device=str(pool.device),
    )


def _settings(**given: Any) -> ScenarioSettings:
    try:
        return ScenarioSettings(**given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = first["msg"].removeprefix("Value error, ")
        raise FedadeError(f"{'.'.join(map(str, first['loc']))}: {message} (given: {first['input']!r})") from error


def _own_array(name: str, given: Any, shape: tuple[int, int]) -> Floats:
    """An array of numbers from 0 to 1; one row may stand for all clients."""
    array = np.asarray(given, dtype=np.float64)
    if array.shape not in (shape, shape[1:]) or not ((array >= 0) & (array <= 1)).all():
        raise FedadeError(
            f"{name} has shape {list(array.shape)}; pass {list(shape)} or {[shape[1]]} numbers from 0 to 1"
        )
    return np.broadcast_to(array, shape)


def _pools(pool: Tensor, corruptions: Sequence[str | Corrupting]) -> Callable[[str, int], Tensor]:
    """The data under each corruption, by its number, and severity; each made once."""

    @cache
    def pool_at(number: str, severity: int) -> Tensor:
        if severity == 0:
            return pool
        corruption = corruptions[int(number)]
        if isinstance(corruption, str):
            return corrupt_images(pool.cpu(), corruption, severity).to(pool.device)
        seen = corruption(pool, severity)
        if not isinstance(seen, Tensor) or seen.shape != pool.shape:
            raise FedadeError(
                f"corruption {number} gives {getattr(seen, 'shape', type(seen).__name__)} for inputs "
                f"{list(pool.shape)}; return a tensor of the same shape"
            )
        return seen

    return pool_at


@dataclass(frozen=True)
class RecordedStreams:
    """Batches that are given: the same whatever the seed."""

    inputs: Tensor
    labels: Tensor
    num_classes: int

    @property
    def num_clients(self) -> int:
        return self.labels.shape[0]

    @property
    def num_timesteps(self) -> int:
        return self.labels.shape[1]

    def draw(self, clients: Ints, timestep: int, purpose: str = "stream") -> Batch:
        """The batches of some clients; their true class distribution is that of the labels."""
        if purpose != "stream":
            raise FedadeError("protocol.score_fresh: recorded streams have no second draw of a batch; set it to false")
        rows = torch.from_numpy(np.asarray(clients))
        inputs, labels = self.inputs[rows, timestep - 1], self.labels[rows, timestep - 1]
        counts = torch.nn.functional.one_hot(labels, self.num_classes).float()
        return Batch(inputs, labels, counts.mean(1), torch.zeros(len(rows), dtype=torch.int64, device=inputs.device))


def recorded_streams(inputs: Any, labels: Any, num_classes: int) -> Streams:
    """Streams of batches that are at hand: inputs `[C, T, n, ...]` and their labels `[C, T, n]`, for scoring;
    all batches have one size.

    >>> streams = recorded_streams(torch.rand(2, 5, 8, 4), torch.zeros(2, 5, 8, dtype=torch.int64), num_classes=3)
    >>> streams.num_clients, streams.num_timesteps
    (2, 5)
    """
    try:
        batches, classes = (
            part if isinstance(part, Tensor) else torch.as_tensor(np.asarray(part)) for part in (inputs, labels)
        )
    except (TypeError, ValueError) as error:
        raise FedadeError(
            "recorded inputs and labels do not fill arrays; pass [clients, timesteps, samples, ...] and [clients, "
            "timesteps, samples] of numbers, all batches of one size"
        ) from error
    if classes.ndim != 3 or batches.shape[:3] != classes.shape or not classes.numel():
        raise FedadeError(
            f"recorded inputs {list(batches.shape)} and labels {list(classes.shape)} do not belong together; pass "
            "[clients, timesteps, samples, ...] and [clients, timesteps, samples]"
        )
    if classes.is_floating_point() or int(classes.min()) < 0 or int(classes.max()) >= num_classes:
        raise FedadeError(f"recorded labels are not whole numbers from 0 to {num_classes - 1}; number classes from 0")
    return RecordedStreams(batches.float() if batches.is_floating_point() else batches, classes.long(), num_classes)
