"""A network as pure functions of its parameters: a body that represents and a head that classifies.

Passes are counted where they happen, which is what a method costs a client.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedade.core.normalisation import FROZEN, Normalisation, PassContext, making_pass
from fedade.core.precision import Precision
from fedade.core.split import Parameters, below

TRAINING_FACTOR = 3
"""A forward and a backward pass cost about three forward passes."""


@dataclass
class PassCounter:
    """Counts the passes of clients' functions, and how often such a function was called."""

    passes: int = 0
    calls: int = 0
    lock: Lock = field(default_factory=Lock, repr=False, compare=False)
    """Clients may run on several threads."""

    def add_call(self) -> None:
        with self.lock:
            self.calls += 1

    def add_pass(self, samples: int) -> None:
        """Count a pass over so many samples; gradients are enabled in training passes only."""
        with self.lock:
            self.passes += samples * (TRAINING_FACTOR if torch.is_grad_enabled() else 1)

    @property
    def per_client(self) -> float:
        """Mean over calls: a vectorised call stands for many clients that each do the same work."""
        return self.passes / max(1, self.calls)


@runtime_checkable
class HasBase(Protocol):
    """A module with frozen weights of its own, beside which the parameters are few (adapters)."""

    def in_precision(self, precision: Precision) -> nn.Module:
        """The same module, its frozen weights cast once."""

    def rounded(self, parameters: Parameters) -> dict[str, Tensor]:
        """Parameters as a pass multiplies with them."""


@runtime_checkable
class Encodes(Protocol):
    """A body that begins with layers which no client ever moves."""

    def encode(self, inputs: Tensor) -> Tensor:
        """What these layers make of inputs; the body takes either."""


@dataclass(frozen=True)
class Network:
    """The structure of a model; its weights are always an argument. Names of parameters begin with `body.` or `head.`.
    The modules are templates: their own tensors are never read."""

    name: str
    body: nn.Module
    head: nn.Module
    precision: Precision = "float32"
    """Precision in which the body multiplies, and a head of several layers; features, logits and parameters are float32
    in any case."""
    counter: PassCounter | None = field(default=None, init=False, repr=False, compare=False)
    """Counts the passes through the body, if there is one (`counting`)."""
    _bodies: "_WorkingCopies" = field(init=False, repr=False, compare=False)
    _heads: "_WorkingCopies" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bodies", _WorkingCopies(self.body))
        object.__setattr__(self, "_heads", _WorkingCopies(self.head))

    def counting(self, counter: PassCounter | None) -> "Network":
        counted = copy(self)
        object.__setattr__(counted, "counter", counter)
        return counted

    def count_pass(self, samples: int) -> None:
        """Count a pass that a client on a real network would make, where its result is known already."""
        if self.counter is not None:
            self.counter.add_pass(samples)

    def to(self, device: torch.device | str) -> "Network":
        """The same structure, with constants such as pixel means on another device."""
        return replace(self, body=deepcopy(self.body).to(device), head=deepcopy(self.head).to(device))

    def computing_in(self, precision: Precision) -> "Network":
        body, head = (
            part.in_precision(precision) if isinstance(part, HasBase) else part for part in (self.body, self.head)
        )
        return replace(self, body=body, head=head, precision=precision)

    def initial_parameters(self) -> dict[str, Tensor]:
        """The tensors that the templates were built with, statistics included."""
        return {
            f"{part}.{name}": value.detach().clone()
            for part, module in (("body", self.body), ("head", self.head))
            for name, value in module.state_dict().items()
        }

    def trainable(self) -> frozenset[str]:
        """Names that gradient steps may move: parameters, not statistics."""
        return frozenset(
            f"{part}.{name}"
            for part, module in (("body", self.body), ("head", self.head))
            for name, _ in module.named_parameters()
        )

    def represent(self, parameters: Parameters, inputs: Tensor, normalisation: Normalisation = FROZEN) -> Tensor:
        """Features h_ψ(x): `[n, d]`, or `[n, L, d]` of texts."""
        self.count_pass(len(inputs))
        with making_pass(PassContext(normalisation, self.precision)):
            features = self._bodies.run(below(parameters, "body."), inputs)
        return features.float() if features.dtype is torch.bfloat16 else features

    def classify(self, parameters: Parameters, features: Tensor) -> Tensor:
        return self._heads.run(below(parameters, "head."), features)

    def encode(self, inputs: Tensor) -> Tensor:
        """Inputs after all that no client ever moves, to be computed once per input; `represent` takes either."""
        return self.body.encode(inputs) if isinstance(self.body, Encodes) else inputs

    @staticmethod
    def summarise(features: Tensor) -> Tensor:
        """One vector per input, `[n, d]`: of hidden states `[n, L, d]`, their mean over the tokens. Bodies leave
        exactly zero where a text is padded, so tokens that are all zero do not count."""
        if features.ndim < 3:
            return features
        present = (features != 0).any(-1, keepdim=True)
        return features.sum(-2) / present.sum(-2).clamp(min=1)

    def logits(self, parameters: Parameters, inputs: Tensor, normalisation: Normalisation = FROZEN) -> Tensor:
        return self.classify(parameters, self.represent(parameters, inputs, normalisation))


class _WorkingCopies:
    """Copies of a module that passes are made with.

    `functional_call` puts a pass's tensors into the module while it runs, so that one copy serves one thread at a time.
    Layers that shared a tensor are given one each, by all their names; to look for such layers would take time.
    Copies share the tensors of the original, which is never run and stays as it was built.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.rounded: Callable[[Parameters], dict[str, Tensor]] = (
            module.rounded if isinstance(module, HasBase) else dict
        )
        self.idle: deque[nn.Module] = deque()

    def run(self, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        """The module's output with these tensors in place of its own."""
        with self._taken() as module:
            outputs: Tensor = functional_call(module, self.rounded(parameters), (inputs,), tie_weights=False)
        return outputs

    @contextmanager
    def _taken(self) -> Iterator[nn.Module]:
        try:
            module = self.idle.pop()
        except IndexError:
            tensors = (*self.module.parameters(), *self.module.buffers())
            module = deepcopy(self.module, {id(tensor): tensor for tensor in tensors})
        try:
            yield module
        finally:
            self.idle.append(module)
