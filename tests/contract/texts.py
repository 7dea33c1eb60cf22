"""A tiny text scenario: a random Llama with adapters, classes that are told by their words, and drifting priors."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.deployment import Deployment, Reference
from fedade.core.scenario import Batch, Scenario
from fedade.core.seeds import Seeds
from fedade.core.split import Split
from fedade.core.tokens import PADDING
from fedade.maths.signals.dynamics import mean_feature
from fedade.models.text import build_text

CLASSES, LENGTH, VOCABULARY = 4, 8, 512
_SHORTEST = 3


def texts(labels: NDArray[np.int64], draws: np.random.Generator) -> Tensor:
    """Token ids `[..., LENGTH]`: every class has words of its own, and texts differ in length."""
    own = VOCABULARY // CLASSES
    tokens = labels[..., None] * own + draws.integers(0, own, (*labels.shape, LENGTH))
    lengths = draws.integers(_SHORTEST, LENGTH + 1, labels.shape)
    tokens[np.arange(LENGTH) >= lengths[..., None]] = PADDING
    return torch.from_numpy(tokens.astype(np.int32))


def text_deployment(reference_size: int = 24) -> Deployment:
    """An untrained model whose adapters all matter, as after pre-training."""
    network = build_text("tiny-llama", CLASSES, rank=2, seed=0)
    draws = Seeds(0).generator("text-deployment")
    trainable = network.trainable()
    parameters = {
        name: value + 0.1 * torch.from_numpy(draws.standard_normal(value.shape)).float() if name in trainable else value
        for name, value in network.initial_parameters().items()
    }
    labels = np.arange(reference_size) % CLASSES
    reference = Reference(texts(labels, draws), torch.from_numpy(labels))
    with torch.no_grad():
        features = network.summarise(network.represent(parameters, reference.inputs))
    uniform = torch.full((CLASSES,), 1 / CLASSES)
    return Deployment(
        network=network,
        split=Split(),
        parameters=parameters,
        reference=reference,
        confusion=0.6 * torch.eye(CLASSES) + 0.4 / CLASSES,
        source_prior=uniform,
        mean_prediction=uniform,
        initial_feature=mean_feature(features),
        temperature=torch.tensor(1.0),
        accuracy=torch.tensor(0.7),
    )


@dataclass(frozen=True)
class TextStreams:
    """Clients whose classes trade places from one timestep to the next."""

    num_clients: int = 3
    num_timesteps: int = 2
    samples: int = 5

    def draw(self, clients: NDArray[np.int64], timestep: int, purpose: str = "stream") -> Batch:
        drawn = [self._one(int(client), timestep, purpose) for client in clients]
        inputs, labels, priors = (torch.stack(parts) for parts in zip(*drawn, strict=True))
        return Batch(inputs, labels, priors, torch.zeros(len(drawn)))

    def _one(self, client: int, timestep: int, purpose: str) -> tuple[Tensor, Tensor, Tensor]:
        draws = Seeds(0).generator(purpose, client=client, timestep=timestep)
        prior = np.full(CLASSES, 0.1)
        prior[(client + timestep) % CLASSES] = 1 - 0.1 * (CLASSES - 1)
        labels = draws.choice(CLASSES, self.samples, p=prior)
        return texts(labels, draws), torch.from_numpy(labels), torch.from_numpy(prior)


def text_scenario() -> Scenario:
    """The deployment and its streams."""
    return Scenario(text_deployment(), TextStreams())
