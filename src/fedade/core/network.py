"""A network as pure functions of its parameters: a body that represents and a head that classifies."""

import threading
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedade.core.cost import count_pass
from fedade.core.known_passes import remembered, tell
from fedade.core.normalisation import FROZEN, Normalisation, using
from fedade.core.precision import Precision, computing
from fedade.core.split import Parameters


@runtime_checkable
class HasBase(Protocol):
    """A module with frozen weights of its own, beside which the parameters are few (adapters)."""

    def in_precision(self, precision: Precision) -> nn.Module:
        """The same module, its frozen weights cast once."""
        ...

    def rounded(self, parameters: Parameters) -> dict[str, Tensor]:
        """Parameters as a pass multiplies with them."""
        ...


@runtime_checkable
class Encodes(Protocol):
    """A body that begins with layers which no client ever moves."""

    def encode(self, inputs: Tensor) -> Tensor:
        """What these layers make of inputs; the body takes either."""
        ...


@dataclass(frozen=True)
class Network:
    """The structure of a model; its weights are always an argument.

    Names of parameters begin with `body.` or `head.`. The modules are templates: their own tensors are never read.
    """

    name: str
    body: nn.Module
    head: nn.Module
    precision: Precision = "float32"
    """In which the body multiplies, and a head of several layers; features, logits and parameters are float32 in any
    case."""

    def to(self, device: torch.device | str) -> "Network":
        """The same structure, with constants such as pixel means on another device."""
        return replace(self, body=deepcopy(self.body).to(device), head=deepcopy(self.head).to(device))

    def computing_in(self, precision: Precision) -> "Network":
        """The same structure, which multiplies in another precision."""
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
        count_pass(len(inputs))

        def compute() -> Tensor:
            with using(normalisation), computing(self.precision):
                features = _pass(self.body, body, inputs)
            return features.float() if features.dtype is torch.bfloat16 else features

        body = _below(parameters, "body.")
        return remembered((*body.values(), inputs), normalisation, compute)

    def tell(self, parameters: Parameters, inputs: Tensor, features: Tensor) -> None:
        """What `represent` would give with deployed statistics, for passes within `remembering_passes`."""
        tell((*_below(parameters, "body.").values(), inputs), FROZEN, features)

    def classify(self, parameters: Parameters, features: Tensor) -> Tensor:
        """Logits, `[n, K]`, of features."""
        return _pass(self.head, _below(parameters, "head."), features)

    def encode(self, inputs: Tensor) -> Tensor:
        """Inputs after all that no client ever moves, to be computed once per input; `represent` takes either."""
        return self.body.encode(inputs) if isinstance(self.body, Encodes) else inputs

    @staticmethod
    def summarise(features: Tensor) -> Tensor:
        """One vector per input, `[n, d]`: of hidden states `[n, L, d]`, their mean over the tokens.

        Bodies leave exactly zero where a text is padded, so tokens that are all zero do not count.
        """
        if features.ndim < 3:
            return features
        present = (features != 0).any(-1, keepdim=True)
        return features.sum(-2) / present.sum(-2).clamp(min=1)

    def logits(self, parameters: Parameters, inputs: Tensor, normalisation: Normalisation = FROZEN) -> Tensor:
        """Logits, `[n, K]`, of inputs."""
        return self.classify(parameters, self.represent(parameters, inputs, normalisation))


def _pass(module: nn.Module, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
    if isinstance(module, HasBase):
        parameters = module.rounded(parameters)
    outputs: Tensor = functional_call(_own(module), parameters, (inputs,))
    return outputs


class _Copies(threading.local):
    """A thread's own copies of modules."""

    def __init__(self) -> None:
        self.of: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()


_copies = _Copies()


def _own(module: nn.Module) -> nn.Module:
    """A copy per worker thread, because `functional_call` puts the parameters into the module while it runs."""
    if threading.current_thread() is threading.main_thread():
        return module
    if module not in _copies.of:
        _copies.of[module] = deepcopy(module)
    return _copies.of[module]


def _below(parameters: Parameters, prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: value for name, value in parameters.items() if name.startswith(prefix)}
