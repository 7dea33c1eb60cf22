"""What ships to every client at t = 0."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from fedade.core import storage
from fedade.core.identity import digest, tensor_bytes
from fedade.core.network import Network, PassCounter
from fedade.core.precision import Precision
from fedade.core.split import Split, below

Constant = TypeVar("Constant")


class Reference(NamedTuple):
    """Labelled data (x⁰, y⁰) that follow the law of the pre-training data."""

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class ReferenceRows:
    """One client's labelled data as rows of a pool that is stored once for all clients."""

    pool: Reference
    rows: Tensor
    """`[n]`"""
    pool_features: Tensor | None = None
    """What the deployed body makes of the pool, where that is known."""

    @property
    def inputs(self) -> Tensor:
        return self.pool.inputs[self.rows]

    @property
    def labels(self) -> Tensor:
        return self.pool.labels[self.rows]


@dataclass(frozen=True)
class Deployment:
    """A pre-trained model with all that label-free adaptation may use."""

    network: Network
    split: Split
    parameters: dict[str, Tensor]
    reference: Reference
    confusion: Tensor
    """M[i, j] = P(predicted i | true j), soft, of the deployed model on data that it was not trained on."""
    source_prior: Tensor
    """Class distribution of the pre-training data."""
    mean_prediction: Tensor
    """Mean calibrated prediction on the held-out data."""
    initial_feature: Tensor
    """z⁰: mean normalised feature of the reference set under the deployed model."""
    temperature: Tensor
    """Calibration of the deployed model, fitted on held-out data."""
    accuracy: Tensor
    """Accuracy of the deployed model on held-out data, for reports."""
    held_out: Tensor | None = None
    """How many equally weighted samples the held-out data are worth; None where it was not told."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """How a model that was brought became this: what `fedade.load_deployment` needs to do it again."""
    _constants: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Results by the functions that made them; `replace` begins without any."""

    @property
    def num_classes(self) -> int:
        return len(self.source_prior)

    @property
    def shared(self) -> dict[str, Tensor]:
        """ψ as deployed."""
        return self.split.shared(self.parameters)

    @property
    def personal(self) -> dict[str, Tensor]:
        """φ as deployed."""
        return self.split.personal_part(self.parameters)

    def constant(self, compute: Callable[["Deployment"], Constant]) -> Constant:
        """What a function makes of this deployment, computed when it is first asked for. Factorisations and choices
        wait for the device and cannot be part of a CUDA graph; made once, they are not in the way."""
        if compute not in self._constants:
            with torch.no_grad():
                self._constants[compute] = compute(self.counting(None))
        known: Constant = self._constants[compute]
        return known

    @property
    def reference_features(self) -> Tensor:
        """Features of the reference set under the deployed body: computed once, but counted as the pass that it is."""
        self.network.count_pass(len(self.reference.inputs))
        return self.constant(_reference_features)

    def apart(self) -> "Deployment":
        """The same deployment with what is known of it; what is measured from now on stays with this copy."""
        own = copy(self)
        object.__setattr__(own, "_constants", dict(self._constants))
        return own

    def counting(self, counter: PassCounter | None) -> "Deployment":
        """The same deployment, constants included, whose network's passes this counter counts."""
        counted = copy(self)
        object.__setattr__(counted, "network", self.network.counting(counter))
        object.__setattr__(counted, "_constants", self._constants)
        return counted

    def __getstate__(self) -> dict[str, Any]:
        """Copies in another process compute their constants themselves: functions inside others cannot be pickled."""
        return {**vars(self), "_constants": {}}

    def to(self, device: torch.device | str) -> "Deployment":
        moved: dict[str, Any] = {name: value.to(device) for name, value in _measured(self).items()}
        parameters = {name: value.to(device) for name, value in self.parameters.items()}
        reference = Reference(*(part.to(device) for part in self.reference))
        return replace(self, network=self.network.to(device), parameters=parameters, reference=reference, **moved)

    def computing_in(self, precision: Precision) -> "Deployment":
        return replace(self, network=self.network.computing_in(precision))

    @property
    def digest(self) -> str:
        """A name that two deployments share only if their weights and all that was measured are the same."""
        return self.constant(_digest)

    def save(self, path: Path | str, metadata: Mapping[str, str] | None = None) -> None:
        """Store everything but the network's structure."""
        storage.save_tensors(Path(path), _named(self), {**self.origin, **(metadata or {})})


def _named(deployment: Deployment) -> dict[str, Tensor]:
    return {
        **{f"parameters/{name}": value for name, value in deployment.parameters.items()},
        **{f"reference/{name}": value for name, value in deployment.reference._asdict().items()},
        **_measured(deployment),
    }


def _measured(deployment: Deployment) -> dict[str, Tensor]:
    known = {name: getattr(deployment, name) for name in _TENSORS}
    return {name: value for name, value in known.items() if value is not None}


def _digest(deployment: Deployment) -> str:
    return digest(*tensor_bytes(_named(deployment)))


def _reference_features(deployment: Deployment) -> Tensor:
    return deployment.network.represent(deployment.parameters, deployment.reference.inputs)


_TENSORS = ("confusion", "source_prior", "mean_prediction", "initial_feature", "temperature", "accuracy", "held_out")


def load_deployment(path: Path | str, network: Network, split: Split) -> Deployment:
    """Read what `Deployment.save` wrote, for the same network and split."""
    tensors, _ = storage.load_tensors(Path(path))
    measured: dict[str, Any] = {name: tensors[name] for name in _TENSORS if name in tensors}
    reference = Reference(tensors["reference/inputs"], tensors["reference/labels"])
    return Deployment(network, split, below(tensors, "parameters/"), reference, **measured)
