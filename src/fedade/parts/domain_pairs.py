"""Domain adaptation of one client: steps on labelled source samples beside unlabelled target samples."""

from abc import abstractmethod
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad
from torch.nn.functional import cross_entropy

from fedade.core.method import ClientContext, Deployment, Method
from fedade.core.split import Parameters
from fedade.core.tree import Tree
from fedade.maths.counter import permutation
from fedade.parts.composition import own_prediction, trainable
from fedade.parts.optimisers import WHOLE, Minibatch, Optimiser, OptimiserState
from fedade.parts.rates import RateBounds


class Embedded(NamedTuple):
    """Features, one vector each, and logits of both batches under one model."""

    source_features: Tensor
    source_logits: Tensor
    target_features: Tensor
    target_logits: Tensor


class AdaptingClient(NamedTuple):
    """A model of its own, what else it remembers, and the optimiser's state."""

    own: dict[str, Tensor]
    memory: Tree
    """What a method remembers of earlier batches, of fixed size."""
    state: OptimiserState


class DomainAdaptation(Method[AdaptingClient]):
    """A method that descends the cross-entropy of the reference set, plus something that the stream's samples tell."""

    pace: Literal["low", "mid", "high"] = "mid"
    rate: RateBounds = RateBounds()
    steps: int = Field(4, ge=0)
    """Gradient steps per timestep."""
    pair_size: int = Field(32, ge=1)
    """Labelled samples in a step, and as many unlabelled ones."""
    optimiser: Optimiser = Optimiser()

    def first_memory(self, deployment: Deployment) -> Tree:
        """What is remembered before the first batch."""
        return ()

    def begin(self, ctx: ClientContext) -> AdaptingClient:
        own = trainable(ctx.deployment)
        return AdaptingClient(own, self.first_memory(ctx.deployment), self.optimiser.start(own))

    @abstractmethod
    def stream_loss(self, embedded: Embedded, memory: Tree) -> tuple[Tensor, Tensor]:
        """What is added to the cross-entropy, and what of it the trace gets."""

    def predict(self, ctx: ClientContext, state: AdaptingClient) -> Tensor:
        return own_prediction(ctx, state.own)

    def adapt(self, ctx: ClientContext, state: AdaptingClient) -> tuple[AdaptingClient, Tensor, Tensor]:
        """A client after all steps of a timestep, its rate, and what the last step gave to the trace."""
        own, moments, deployment = state.own, state.state, ctx.deployment
        rate = self.rate.rate(self.pace, torch.zeros_like(deployment.accuracy))
        noted = torch.zeros_like(rate)
        for step in range(self.steps):
            source = _rows(ctx.key, len(ctx.reference.labels), self.pair_size, 2 * step)
            target = _rows(ctx.key, len(ctx.inputs), self.pair_size, 2 * step + 1)
            labels, both = ctx.reference.labels[source], torch.cat([ctx.reference.inputs[source], ctx.inputs[target]])

            def loss(moved: dict[str, Tensor], labels: Tensor = labels, both: Tensor = both) -> tuple[Tensor, Tensor]:
                embedded = _embedded(deployment, moved, both, len(labels))
                added, noted = self.stream_loss(embedded, state.memory)
                return cross_entropy(embedded.source_logits, labels) + added, noted

            slopes, noted = grad(loss, has_aux=True)(own)
            steps, moments = self.optimiser.directions(own, slopes, moments)
            own = {name: value - rate * steps[name] for name, value in own.items()}
        return state._replace(own=own, state=moments), rate, noted


def _embedded(deployment: Deployment, own: Parameters, inputs: Tensor, size: int) -> Embedded:
    """One pass, with the deployed normalisation statistics, over both batches, the first being this large."""
    network, model = deployment.network, {**deployment.parameters, **own}
    features = network.represent(model, inputs)
    logits = network.classify(model, features)
    features = network.summarise(features)
    return Embedded(features[:size], logits[:size], features[size:], logits[size:])


def _rows(key: Tensor, size: int, batch_size: int, purpose: int) -> Minibatch:
    """Random rows of a set; one that fits into a batch is taken whole."""
    return WHOLE if size <= batch_size else permutation(key, size, purpose)[:batch_size]
