"""The usual way to write this: one module per client, one client after the other, `backward` and PyTorch's SGD.

This is what the simulator is timed against. It does the work of the authors' released code, in plain and competent
PyTorch: no needless copies, no gradients where none are used, whole batches. Only what makes the numbers differ is
taken from the paper instead (docs/deviations.md): the joint steps come first, the broadcast arrives, q is the mean
softmax, and normalisation statistics stay as deployed.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from fedade.core.deployment import Deployment
from fedade.core.network import Network
from fedade.core.scenario import Batch, Scenario
from fedade.core.seeds import Seeds
from fedade.models.batch_norm import BatchNorm
from fedade.parts.rates import RateBounds
from fedade.speed.workload import Work


class PlainModel(nn.Module):
    """A body and a head from PyTorch's own layers, under the names of our networks."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.body, self.head = plainly(network.body), plainly(network.head)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(inputs))
        return logits


class PlainClient:
    """A model of its own, what its last batch was like, and the rate that follows from it."""

    def __init__(self, work: Work, deployment: Deployment) -> None:
        self.work, self.model = work, plain_model(deployment)
        self.previous = first_summaries(deployment)
        """Of its last participation."""
        self.rate = 0.0
        shared = deployment.split.is_shared
        self.shared_names = [name for name, _ in self.model.named_parameters() if shared(name)]

    def joint(self, inputs: Tensor) -> dict[str, Tensor]:
        """Signals, then steps on all parameters; the shared ones are sent."""
        self.rate = self._rate(inputs)
        _descend(self.model, self.model.parameters(), inputs, self.rate, self.work.joint_epochs)
        state = self.model.state_dict()
        return {name: state[name].clone() for name in self.shared_names}

    def receive(self, average: Mapping[str, Tensor]) -> None:
        """The broadcast takes the place of its shared parameters."""
        self.model.load_state_dict(average, strict=False)

    def personal(self, inputs: Tensor) -> None:
        """Steps on the head, the body as it was received."""
        self.model.body.requires_grad_(False)
        _descend(self.model, self.model.head.parameters(), inputs, self.rate, self.work.personal_epochs)
        self.model.body.requires_grad_(True)

    @torch.no_grad()
    def accuracy(self, inputs: Tensor, labels: Tensor) -> float:
        return float((self.model(inputs).argmax(-1) == labels).double().mean())

    @torch.no_grad()
    def _rate(self, inputs: Tensor) -> float:
        """Learning rate from two signals, with a pass for each, as in the released code."""
        before, self.previous = self.previous, summaries(self.model(inputs), self.model.body(inputs))
        return float(learning_rate(self.work.rate, before, self.previous))


class TimestepLoop(ABC):
    """A server and its clients, timestep after timestep, with nothing of the simulator."""

    def __init__(self, work: Work, scenario: Scenario, seeds: Seeds) -> None:
        self.work, self.scenario, self.seeds = work, scenario, seeds

    def timestep(self, timestep: int) -> NDArray[np.float64]:
        """All rounds, then every client's accuracy on its batch."""
        batch = self.draw(timestep)
        for number in range(self.work.rounds):
            self.round(batch, timestep, number)
        return self.score(batch)

    def draw(self, timestep: int) -> Batch:
        """The batches of all clients."""
        return self.scenario.streams.draw(np.arange(self.work.clients), timestep)

    @abstractmethod
    def round(self, batch: Batch, timestep: int, number: int) -> None:
        """Signals, joint steps, average, broadcast, personal steps."""

    @abstractmethod
    def score(self, batch: Batch) -> NDArray[np.float64]:
        """Accuracy of every client."""


class PlainLoop(TimestepLoop):
    """A model per client, a server, and three nested loops: timesteps, rounds, participants."""

    def __init__(self, work: Work, scenario: Scenario, seeds: Seeds) -> None:
        super().__init__(work, scenario, seeds)
        self.clients = [PlainClient(work, scenario.deployment) for _ in range(work.clients)]

    def round(self, batch: Batch, timestep: int, number: int) -> None:
        chosen = self.work.exchange_rounds.participants(self.seeds, self.work.clients, timestep)[number].tolist()
        uploads = [self.clients[place].joint(batch.inputs[place]) for place in chosen]
        average = {name: torch.stack([upload[name] for upload in uploads]).mean(0) for name in uploads[0]}
        for client in self.clients:
            client.receive(average)
        for place in chosen:
            self.clients[place].personal(batch.inputs[place])

    def score(self, batch: Batch) -> NDArray[np.float64]:
        together = zip(self.clients, batch.inputs, batch.labels, strict=True)
        return np.array([client.accuracy(inputs, labels) for client, inputs, labels in together])


def plain_model(deployment: Deployment) -> PlainModel:
    """A client's model as deployed, in evaluation mode: normalisation statistics are frozen."""
    model = PlainModel(deployment.network)
    model.load_state_dict(deployment.parameters, strict=False)
    return model.to(deployment.source_prior.device).eval()


def first_summaries(deployment: Deployment) -> tuple[Tensor, Tensor]:
    """What a client's first batch is compared with."""
    return torch.full_like(deployment.source_prior, 1 / deployment.num_classes), deployment.initial_feature


def summaries(logits: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean prediction and mean feature of a batch."""
    return logits.softmax(-1).mean(0), F.normalize(features, dim=-1).mean(0)


def learning_rate(bounds: RateBounds, before: Sequence[Tensor], now: Sequence[Tensor]) -> Tensor:
    """From two signals: how far the summaries of a client's batches lie apart."""
    prediction, feature = (1 - F.cosine_similarity(*pair, dim=0) for pair in zip(now, before, strict=True))
    return bounds.low + (bounds.high - bounds.low) * (prediction.clamp(0, 1) + feature / 2) / 2


def entropy(logits: Tensor) -> Tensor:
    log_probabilities = F.log_softmax(logits, -1)
    return -(log_probabilities.exp() * log_probabilities).sum(-1).mean()


def _descend(model: PlainModel, parameters: Iterable[nn.Parameter], inputs: Tensor, rate: float, epochs: int) -> None:
    """Full-batch SGD on the entropy of the predictions."""
    optimiser = torch.optim.SGD(parameters, lr=rate)
    for _ in range(epochs):
        optimiser.zero_grad()
        entropy(model(inputs)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def plainly(module: nn.Module) -> nn.Module:
    """The same layers, each by itself and PyTorch's own."""
    if isinstance(module, BatchNorm):
        return nn.BatchNorm2d(len(module.weight), module.eps, module.momentum)
    if isinstance(module, nn.Sequential):
        return nn.Sequential(*(plainly(child) for child in module))
    plain = deepcopy(module)
    for name, child in module.named_children():
        setattr(plain, name, plainly(child))
    return plain
