"""Domain adaptation of one client: steps on labelled source samples beside unlabelled target samples."""

from abc import abstractmethod
from collections.abc import Iterator
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
from fedade.parts.optimisers import Optimiser, OptimiserState
from fedade.parts.rates import RateBounds


class DomainPair(NamedTuple):
    """A labelled batch of the reference set and an unlabelled one of the stream."""

    source_inputs: Tensor
    source_labels: Tensor
    target_inputs: Tensor


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

    def first_state(self, deployment: Deployment, memory: Tree) -> AdaptingClient:
        own = trainable(deployment)
        return AdaptingClient(own, memory, self.optimiser.start(own))

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
        for pair in domain_pairs(ctx, self.steps, self.pair_size):

            def loss(moved: dict[str, Tensor], pair: DomainPair = pair) -> tuple[Tensor, Tensor]:
                embedded = embed(deployment, moved, pair)
                added, noted = self.stream_loss(embedded, state.memory)
                return cross_entropy(embedded.source_logits, pair.source_labels) + added, noted

            slopes, noted = grad(loss, has_aux=True)(own)
            steps, moments = self.optimiser.directions(own, slopes, moments)
            own = {name: value - rate * steps[name] for name, value in own.items()}
        return state._replace(own=own, state=moments), rate, noted


def domain_pairs(ctx: ClientContext, steps: int, batch_size: int) -> Iterator[DomainPair]:
    """A random pair for every step; a set that fits into a batch is taken whole."""
    reference, inputs = ctx.reference, ctx.inputs
    for step in range(steps):
        source = _rows(ctx.key, len(reference.labels), batch_size, 2 * step)
        target = _rows(ctx.key, len(inputs), batch_size, 2 * step + 1)
        yield DomainPair(reference.inputs[source], reference.labels[source], inputs[target])


def embed(deployment: Deployment, own: Parameters, pair: DomainPair) -> Embedded:
    """One pass over both batches, with the deployed normalisation statistics."""
    network, model = deployment.network, {**deployment.parameters, **own}
    features = network.represent(model, torch.cat([pair.source_inputs, pair.target_inputs]))
    logits = network.classify(model, features)
    features = network.summarise(features)
    size = len(pair.source_labels)
    return Embedded(features[:size], logits[:size], features[size:], logits[size:])


def _rows(key: Tensor, size: int, batch_size: int, purpose: int) -> Tensor | slice:
    return slice(None) if size <= batch_size else permutation(key, size, purpose)[:batch_size]
