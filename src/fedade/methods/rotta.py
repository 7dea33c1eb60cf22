"""RoTTA: a slow teacher learns from a memory that is balanced, fresh and sure of itself (Yuan et al., CVPR 2023).

Samples compete for places: classes hold equally many, and old or uncertain samples give way. Once for as many samples
as there are places, statistics move a little towards the memory's, the student follows the teacher on a random view of
it, the younger a sample the more it counts, and the teacher follows the student slowly. Predictions are the teacher's,
with its running statistics: one sample's answer does not depend on the others of its batch. Statistics move by a
twentieth per 64 samples, so a short stream stays near the deployed model. Views are CoTTA's here.

A client keeps `memory_size` inputs and 24 bytes per scale and shift. A timestep costs a forward pass per sample, and
four per place of the memory, made whether or not a period ends: clients are computed together. Nothing is sent.
"""

from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.core.tree import choose, tree_map
from fedade.maths.losses import entropy
from fedade.parts import sample_memory
from fedade.parts.augmentation import random_view, refuse_without_views
from fedade.parts.composition import own_prediction
from fedade.parts.norm_layers import moved, named_statistics, norm_learner
from fedade.parts.optimisers import AdamOptimiser, Learner
from fedade.parts.rates import constant_rate
from fedade.parts.running_norms import Following, own_statistics


class RottaClient(NamedTuple):
    """A student that learns, a teacher that answers, and the memory that both are shown."""

    student: Learner
    student_statistics: dict[str, Tensor]
    teacher: dict[str, Tensor]
    """Scales and shifts."""
    teacher_statistics: dict[str, Tensor]
    memory: sample_memory.SampleMemory


class Rotta(Method[RottaClient]):
    """Robust test-time adaptation, with the published constants."""

    about = Card("slow teacher on a class-balanced, fresh and certain memory; made for BatchNorm", "RoTTA, CVPR 2023")

    learning_rate: float = Field(1e-3, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    teacher_rate: float = Field(1e-3, ge=0, le=1)
    """ν: share of the student in the teacher's next scales and shifts."""
    statistics_momentum: float = Field(0.05, ge=0, le=1)
    """α: share of the memory in the next running statistics."""
    memory_size: int = Field(64, ge=1)
    """Samples that are kept, and after how many new ones a step is taken."""

    def begin(self, ctx: ClientContext) -> RottaClient:
        refuse_without_views(ctx.deployment, "rotta")
        student = norm_learner(ctx.deployment, "rotta", self.optimiser)
        statistics = own_statistics(ctx.deployment)
        memory = sample_memory.empty_memory(ctx, self.memory_size)
        return RottaClient(student, statistics, student.own, statistics, memory)

    def observe(self, ctx: ClientContext, state: RottaClient) -> tuple[RottaClient, Plan]:
        """Samples compete for places by what the incoming teacher says of them; then steps that are due."""
        probabilities = self.predict(ctx, state)
        surprise = entropy(probabilities) / torch.full_like(probabilities[0, 0], len(probabilities[0])).log()
        memory, occasions = sample_memory.remember(
            state.memory, ctx, probabilities, surprise, balanced_fresh_and_certain, self.memory_size
        )
        for occasion in occasions:
            state = RottaClient(*choose(occasion.due, self._learned(ctx, state, occasion), state))
        plan = {"learning_rate": constant_rate(self.learning_rate, surprise[0])}
        return state._replace(memory=memory), plan

    def predict(self, ctx: ClientContext, state: RottaClient) -> Tensor:
        return own_prediction(ctx, {**state.teacher, **state.teacher_statistics})

    def _learned(self, ctx: ClientContext, state: RottaClient, occasion: sample_memory.Occasion) -> RottaClient:
        network, deployed = ctx.deployment.network, ctx.deployment.parameters
        there = occasion.places.taken.to(deployed[next(iter(state.teacher))].dtype)
        taught = Following(self.statistics_momentum, there)
        shown = {**deployed, **state.teacher, **state.teacher_statistics}
        target = network.logits(shown, occasion.inputs, taught).softmax(-1)
        view = random_view(occasion.inputs, ctx.key)
        ages = (occasion.seen - occasion.places.born) / self.memory_size
        weights = there * torch.sigmoid(-ages)

        def loss(own: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            learnt = Following(self.statistics_momentum, there)
            logits = network.logits({**deployed, **state.student_statistics, **own}, view, learnt)
            apart = -(target * logits.log_softmax(-1)).sum(-1)
            found = tree_map(torch.detach, named_statistics(learnt.found))
            return (weights * apart).sum() / there.sum().clamp_min(1), found

        slopes, statistics = grad(loss, has_aux=True)(state.student.own)
        student = moved(state.student, slopes, self.optimiser, self.learning_rate)
        teacher = {
            name: torch.lerp(value, student.own[name], self.teacher_rate) for name, value in state.teacher.items()
        }
        return RottaClient(student, statistics, teacher, named_statistics(taught.found), state.memory)


def balanced_fresh_and_certain(
    places: sample_memory.Places, newcomer: sample_memory.Newcomer, num_classes: int
) -> Tensor:
    """CSTU: the oldest and least certain sample of the newcomer's class, or of the largest classes, gives way to it. A
    class has at most its even share of the places; a newcomer that scores no better than all others is dropped."""
    size = len(places.labels)
    counts = places.per_class(num_classes)
    has_room = counts[newcomer.label] * num_classes < size
    of_largest = (counts == counts.max())[places.labels.clamp_min(0)] & places.taken
    candidates = torch.where(has_room, of_largest, places.labels == newcomer.label)
    scores = torch.sigmoid((newcomer.seen - places.born) / size) + places.uncertainty
    worse = candidates & (scores > 0.5 + newcomer.uncertainty)
    return torch.where(
        has_room & ~places.taken.all(), sample_memory.first_empty(places), sample_memory.best_of(worse, scores)
    )
