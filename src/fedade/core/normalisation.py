"""With which statistics a network's batch normalisation layers normalise, and what else layers must be told of a pass.

A layer asks the strategy of the current pass, which is an argument of `Network.represent`. So the same weights can be
evaluated with the deployed statistics, with a batch's own, or with a mix, per client and in all client maps. It is told
by the only context variable of the package: no argument can reach layers deep inside a module.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from fedade.core.precision import Precision

Seen = TypeVar("Seen")


class Statistics(NamedTuple):
    """Mean and (biased) variance of a layer's input, per channel: `[C]`, or `[n, C]` where every sample has its own."""

    mean: Tensor
    variance: Tensor


class InputMoments(NamedTuple):
    """What is known of a layer's input `[n, channels, ...]` instead of the input itself."""

    mean: Tensor
    """`[n, channels]`; `[1, channels]` of the whole batch."""
    variance: Tensor
    """Biased, of the same shape."""
    samples: int
    pixels: int
    """Of a sample."""


class Normalisation(Protocol):
    """Chooses the statistics that a layer uses for an input."""

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        """The statistics for `inputs` of the named layer, given those it was deployed with."""


class ByMoments(ABC):
    """A strategy that looks at no more of an input than its moments, which a layer may then be able to tell it in
    passing, without the copies that plain arithmetic makes of images."""

    of_samples: ClassVar[bool] = False
    """Whether it wants those of every sample, and not only of the batch."""

    @abstractmethod
    def statistics(self, layer: str, inputs: Tensor | InputMoments, deployed: Statistics) -> Statistics:
        """As any strategy."""


class SampleMoments(NamedTuple):
    """Mean and mean square of every sample's channels, instead of a layer's input itself."""

    values: Tensor
    """`[2, n, channels]`"""


class BySampleMoments(ABC):
    """A strategy that looks at no more than the moments of every sample, which the product before a layer may then
    leave in passing; and at those of some layers only: the others stay as deployed, and can be fused."""

    @abstractmethod
    def looks_at(self, layer: str) -> bool:
        """Whether a layer's statistics depend on its inputs, or it wants to see their moments."""

    @abstractmethod
    def statistics(self, layer: str, inputs: Tensor | SampleMoments, deployed: Statistics) -> Statistics:
        """As any strategy."""


def batch_statistics(inputs: Tensor | InputMoments) -> Statistics:
    """Statistics of one batch `[n, channels, ...]`, over all axes but the channels."""
    if isinstance(inputs, InputMoments):
        return Statistics(inputs.mean.squeeze(0), inputs.variance.squeeze(0))
    axes = (0, *range(2, inputs.ndim))
    exact = inputs.float() if inputs.dtype is torch.bfloat16 else inputs
    return Statistics(exact.mean(axes), exact.var(axes, correction=0))


def blended(old: Tensor, new: Tensor, weight: float) -> Tensor:
    """(1 - weight) old + weight new, in one operation where both have one precision."""
    return torch.lerp(old, new, weight) if old.dtype is new.dtype else (1 - weight) * old + weight * new


@dataclass(frozen=True)
class Frozen:
    """The deployed statistics: what the paper's preset uses."""

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        return deployed


@dataclass(frozen=True)
class Mixed(ByMoments):
    """A mix of the batch's own statistics (`weight` 1: batch only) and the deployed ones (`weight` 0)."""

    weight: float = 1.0

    def statistics(self, layer: str, inputs: Tensor | InputMoments, deployed: Statistics) -> Statistics:
        batch = batch_statistics(inputs)
        if self.weight == 1:
            return batch
        return Statistics(*(blended(old, new, self.weight) for old, new in zip(deployed, batch, strict=True)))


@dataclass(frozen=True)
class RecordingStatistics(ByMoments):
    """Keeps the batch's own statistics by layer, for running averages, and normalises with them, or the deployed."""

    applies: bool = True
    seen: dict[str, Statistics] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor | InputMoments, deployed: Statistics) -> Statistics:
        self.seen[layer] = batch_statistics(inputs)
        return self.seen[layer] if self.applies else deployed


@dataclass(frozen=True)
class Watching(Generic[Seen]):
    """Normalises with the deployed statistics, and keeps what a function makes of every layer's inputs."""

    look: Callable[[Tensor], Seen]
    seen: dict[str, Seen] = field(default_factory=dict)

    def statistics(self, layer: str, inputs: Tensor, deployed: Statistics) -> Statistics:
        self.seen[layer] = self.look(inputs)
        return deployed


FROZEN = Frozen()


class PassContext(NamedTuple):
    """How one forward pass is to be made."""

    normalisation: Normalisation = FROZEN
    """Which statistics batch normalisation layers use."""
    precision: Precision = "float32"
    """The precision in which layers multiply."""
    native: bool = True
    """Whether C++ may be compiled for it, which warns where there is no compiler, and loaded, which changes how the
    process keeps freed memory."""


_PLAIN = PassContext()
_current: ContextVar[PassContext] = ContextVar("pass", default=_PLAIN)


def current_pass() -> PassContext:
    """How the pass that is being made wants its layers to compute."""
    return _current.get()


@contextmanager
def making_pass(context: PassContext) -> Iterator[None]:
    """Tell the layers of one forward pass how to compute."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
