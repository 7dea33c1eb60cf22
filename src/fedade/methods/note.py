"""NOTE: instance-aware normalisation, and entropy steps on a balanced memory of the stream (Gong et al., NeurIPS 2022).

Each sample is normalised by its own statistics as far as these lie beyond chance, so that a batch of one class does no
harm. A memory that holds all predicted classes alike gives the batches that scales, shifts and running statistics learn
from, once for as many samples as it has places. The original trains its network with these layers. Here they take the
place of BatchNorm in a network that was trained without, as others run it too: it helps less, and since pixels are not
independent, clean inputs are corrected as well (`tolerance`).

A client keeps `memory_size` inputs and 16 bytes per scale and shift. A timestep costs a forward pass per sample, and
three per place of the memory, which is made whether or not a period ends: clients are computed together. Nothing is
sent.
"""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.core.tree import choose
from fedade.maths.losses import entropy_from_logits
from fedade.parts import sample_memory
from fedade.parts.norm_layers import follow, moved, norm_learner
from fedade.parts.optimisers import AdamOptimiser, Learner
from fedade.parts.rates import constant_rate
from fedade.parts.running_norms import InstanceAware, own_statistics


class NoteClient(NamedTuple):
    """Scales and shifts with their optimiser, running statistics, and the memory."""

    learner: Learner
    statistics: dict[str, Tensor]
    memory: sample_memory.SampleMemory


class Note(Method[NoteClient]):
    """Non-i.i.d. test-time adaptation, with the constants of the released script."""

    about = Card(
        summary="instance-aware normalisation, entropy steps on a class-balanced memory; made for BatchNorm",
        paper="NOTE, NeurIPS 2022",
    )

    learning_rate: float = Field(1e-4, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    tolerance: float = Field(4.0, ge=0)
    """k: standard errors within which a sample's statistics count as the common ones."""
    statistics_momentum: float = Field(0.01, ge=0, le=1)
    """Weight of a batch in the running statistics."""
    memory_size: int = Field(64, ge=1)
    """Samples that are kept, and after how many new ones a step is taken."""

    def begin(self, ctx: ClientContext) -> NoteClient:
        learner = norm_learner(ctx.deployment, "note", self.optimiser)
        return NoteClient(learner, own_statistics(ctx.deployment), sample_memory.empty_memory(ctx, self.memory_size))

    def observe(self, ctx: ClientContext, state: NoteClient) -> tuple[NoteClient, Plan]:
        """Samples find their places by the classes that the incoming model gives them; then steps that are due."""
        probabilities = self.predict(ctx, state)
        certain = torch.zeros_like(probabilities[:, 0])
        memory, occasions = sample_memory.remember(
            state.memory, ctx, probabilities, certain, balanced_reservoir, self.memory_size
        )
        for occasion in occasions:
            state = NoteClient(*choose(occasion.due, self._learned(ctx, state, occasion), state))
        return state._replace(memory=memory), {"learning_rate": constant_rate(self.learning_rate, certain[0])}

    def predict(self, ctx: ClientContext, state: NoteClient) -> Tensor:
        model = {**ctx.deployment.parameters, **state.learner.own, **state.statistics}
        return ctx.deployment.network.logits(model, ctx.inputs, InstanceAware(self.tolerance)).softmax(-1)

    def _learned(self, ctx: ClientContext, state: NoteClient, occasion: sample_memory.Occasion) -> NoteClient:
        """A step on the mean entropy of the memory, whose statistics the running ones follow."""
        fixed = {**ctx.deployment.parameters, **state.statistics}

        def loss(own: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            aware = InstanceAware(self.tolerance, of_batch=True)
            logits = ctx.deployment.network.logits({**fixed, **own}, occasion.inputs, aware)
            return entropy_from_logits(logits).mean(), follow(state.statistics, aware.seen, self.statistics_momentum)

        slopes, statistics = grad(loss, has_aux=True)(state.learner.own)
        learner = moved(state.learner, slopes, self.optimiser, self.learning_rate)
        return state._replace(learner=learner, statistics={**state.statistics, **statistics})


def balanced_reservoir(places: sample_memory.Places, newcomer: sample_memory.Newcomer, num_classes: int) -> Tensor:
    """PBRS: a sample of a class that is not among the largest replaces one that is; others as in a reservoir."""
    counts, coin = places.per_class(num_classes), newcomer.draws[-1]
    largest = counts == counts.max()
    of_largest = largest[places.labels.clamp_min(0)] & places.taken
    of_class = places.labels == newcomer.label
    accepted = coin < counts[newcomer.label] / newcomer.class_count
    candidates = torch.where(largest[newcomer.label], of_class & accepted, of_largest)
    return torch.where(
        places.taken.all(), sample_memory.best_of(candidates, newcomer.draws[:-1]), sample_memory.first_empty(places)
    )
