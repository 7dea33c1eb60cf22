"""The work that is timed: a federation of the paper's size on random images, so that no dataset is needed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.deployment import Deployment, Reference
from fedade.core.network import Network
from fedade.core.scenario import Batch, Scenario
from fedade.core.seeds import Seeds
from fedade.core.split import Split
from fedade.engine.attendance import Rounds
from fedade.methods.fed_ade import FedAde
from fedade.models import build
from fedade.models.image import Pixels
from fedade.parts.objectives import ObjectiveName
from fedade.parts.rates import RateBounds
from fedade.parts.training import ReferenceDraws

POOL = 2_000
"""Different images; more would not change the time."""
REFERENCE = 500
"""Images of the labelled reference set."""

CONFIDENCE = 10
"""How much larger a trained head's weights are than fresh ones."""


@dataclass(frozen=True)
class Work:
    """A federation; the defaults are those of the released code on CIFAR-10."""

    clients: int = 100
    participants: int = 10
    rounds: int = 10
    timesteps: int = 1
    samples: int = 50
    """Images per client and timestep; local steps take them all at once."""
    joint_epochs: int = 2
    personal_epochs: int = 2
    model: str = "resnet-3block"
    input_shape: tuple[int, int, int] = (3, 32, 32)
    num_classes: int = 10
    objective: ObjectiveName = "entropy"
    reference_draws: ReferenceDraws = "epoch"
    """Of the paper's risk: whether an epoch reads all labelled images, or as many as the batch has."""
    federations: int = 1
    """Seeds or schedules that the simulator runs in one batch on a GPU; times are those of one of them."""
    rate: RateBounds = field(default_factory=RateBounds)

    @property
    def method(self) -> FedAde:
        """Fed-ADE on this work: whole batches of the stream for entropy, the paper's batches of 32 for its risk."""
        return FedAde(
            objective=self.objective,
            batch_size=self.samples if self.objective == "entropy" else 32,
            reference_draws=self.reference_draws,
            joint_epochs=self.joint_epochs,
            personal_epochs=self.personal_epochs,
            rate=self.rate,
        )

    @property
    def exchange_rounds(self) -> Rounds:
        """How its clients and its server meet."""
        return Rounds(self.rounds, self.participants / self.clients)

    def network(self) -> Network:
        """Its network, with pixels scaled as natural images are."""
        pixels = Pixels([0.5] * self.input_shape[0], [0.25] * self.input_shape[0])
        return build(self.model, self.input_shape, self.num_classes, pixels, seed=0)


WORKS: Mapping[str, Work] = {
    "cifar10": Work(),
    "tiny-imagenet": Work(samples=100, model="resnet18", input_shape=(3, 64, 64), num_classes=200),
}


@dataclass(frozen=True)
class RandomStreams:
    """Random images of one pool for every client and timestep, in the form in which real streams arrive: uint8."""

    pool: Tensor
    labels: Tensor
    rows: Tensor
    """Rows of the pool, `[T, C, n]`, which begin again when they end."""
    num_classes: int
    num_timesteps: int

    @property
    def num_clients(self) -> int:
        return self.rows.shape[1]

    def draw(self, clients: NDArray[np.int64], timestep: int, purpose: str = "stream") -> Batch:
        """The batches of some clients at a timestep, from 1; every purpose draws the same."""
        rows = self.rows[(timestep - 1) % len(self.rows), torch.from_numpy(clients).to(self.rows.device)]
        prior = torch.full((len(clients), self.num_classes), 1 / self.num_classes, device=rows.device)
        severity = torch.zeros(len(clients), dtype=torch.long, device=rows.device)
        return Batch(self.pool[rows], self.labels[rows], prior, severity)


def random_scenario(work: Work, device: str) -> Scenario:
    """A deployment with random weights and the streams that follow it."""
    seeds = Seeds(0)
    drawn = (
        seeds.generator("images").integers(0, 256, (POOL, *work.input_shape), dtype=np.uint8),
        seeds.generator("labels").integers(0, work.num_classes, POOL),
        seeds.generator("rows").integers(0, POOL, (work.timesteps, work.clients, work.samples)),
    )
    images, labels, rows = (torch.from_numpy(values).to(device) for values in drawn)
    network = work.network()
    uniform = torch.full((work.num_classes,), 1 / work.num_classes)
    deployment = Deployment(
        network=network,
        split=Split(),
        parameters=_plausible(network.initial_parameters(), seeds),
        reference=Reference(images[:REFERENCE], labels[:REFERENCE]),
        confusion=0.5 * torch.eye(work.num_classes) + 0.5 * uniform,
        source_prior=uniform,
        mean_prediction=uniform,
        initial_feature=network.initial_parameters()["head.weight"].abs().mean(0),
        temperature=torch.ones(()),
        accuracy=torch.zeros(()),
    )
    return Scenario(deployment.to(device), RandomStreams(images, labels, rows, work.num_classes, work.timesteps))


def _plausible(parameters: dict[str, Tensor], seeds: Seeds) -> dict[str, Tensor]:
    """As after training: confident, and with normalisation layers whose every tensor matters to the numbers."""

    def spread(name: str, value: Tensor) -> Tensor:
        generator = seeds.generator(name)
        if name.endswith("running_var") or (value.ndim == 1 and name.endswith("weight")):
            return torch.from_numpy(generator.uniform(0.5, 1.5, value.shape)).float()
        if value.ndim == 1:
            return torch.from_numpy(generator.normal(0, 0.1, value.shape)).float()
        return CONFIDENCE * value if name == "head.weight" else value

    return {name: spread(name, value) for name, value in parameters.items()}
