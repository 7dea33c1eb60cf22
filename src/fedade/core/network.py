"""A network as pure functions of its parameters: a body that represents and a head that classifies."""

import threading
from copy import deepcopy
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedade.core.cost import count_pass
from fedade.core.normalisation import FROZEN, Normalisation, using
from fedade.core.precision import Precision, computing
from fedade.core.split import Parameters


@dataclass(frozen=True)
class Network:
    """The structure of a model; its weights are always an argument.

    Names of parameters begin with `body.` or `head.`. The modules are templates: their own tensors are never read.
    """

    name: str
    body: nn.Module
    head: nn.Module
    precision: Precision = "float32"
    """In which the body multiplies; features, heads and parameters are float32 in any case."""

    def to(self, device: torch.device | str) -> "Network":
        """The same structure, with constants such as pixel means on another device."""
        return replace(self, body=deepcopy(self.body).to(device), head=deepcopy(self.head).to(device))

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
        """Features h_ψ(x), `[n, d]`."""
        count_pass(len(inputs))
        with using(normalisation), computing(self.precision):
            features: Tensor = functional_call(_own(self.body), _below(parameters, "body."), (inputs,))
        return features.float() if features.dtype is torch.bfloat16 else features

    def classify(self, parameters: Parameters, features: Tensor) -> Tensor:
        """Logits, `[n, K]`, of features."""
        logits: Tensor = functional_call(_own(self.head), _below(parameters, "head."), (features,))
        return logits

    def logits(self, parameters: Parameters, inputs: Tensor, normalisation: Normalisation = FROZEN) -> Tensor:
        """Logits, `[n, K]`, of inputs."""
        return self.classify(parameters, self.represent(parameters, inputs, normalisation))


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
