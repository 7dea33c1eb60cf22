"""TRIBE: three networks on statistics that are balanced over classes (Su et al., AAAI 2024).

BatchNorm layers keep statistics for every class and normalise with all classes in equal parts. A student learns the
teacher's certain answers on a random view; the teacher, which has the same scales and shifts, is held near an anchor
with the deployed ones. Each of the three keeps class statistics of its own, by the teacher's predicted classes. The
released loss is not a number where no sample is certain, and its optimiser then moves on by momentum; here such a step
is not taken. Views are CoTTA's here.

A client keeps 24 bytes per class and normalised channel and 12 per scale and shift. A timestep costs about 8 forward
passes per sample; nothing is sent.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.functional import cross_entropy

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.core.tree import tree_map
from fedade.maths.losses import entropy_from_logits
from fedade.parts.augmentation import random_view, refuse_without_views
from fedade.parts.norm_layers import masked_mean, moved, norm_learner, plan_with_reliable
from fedade.parts.optimisers import Learner
from fedade.parts.running_norms import BalancedLearning, ClassBalanced, ClassRows, deployed_rows, mixtures

Rows = dict[str, ClassRows]


class TribeClient(NamedTuple):
    """Scales and shifts with their optimiser, and the class statistics of the three networks."""

    learner: Learner
    teacher: Rows
    student: Rows
    anchor: Rows


class Tribe(BalancedLearning, Method[TribeClient]):
    """Tri-net self-training with balanced normalisation."""

    about = Card(
        summary="student, teacher and anchor on class-balanced statistics; made for BatchNorm, moves any norm",
        paper="TRIBE, AAAI 2024",
    )

    def begin(self, ctx: ClientContext) -> TribeClient:
        refuse_without_views(ctx.deployment, "tribe")
        learner = norm_learner(ctx.deployment, "tribe", self.optimiser)
        rows = deployed_rows(ctx.deployment)
        return TribeClient(learner, rows, rows, rows)

    def observe(self, ctx: ClientContext, state: TribeClient) -> tuple[TribeClient, Plan]:
        deployment, view = ctx.deployment, random_view(ctx.inputs, ctx.key)
        labels, limit = self.predict(ctx, state).argmax(-1), self.certain_below(deployment.num_classes)

        def passed(own: dict[str, Tensor], rows: Rows, inputs: Tensor) -> tuple[Tensor, Rows]:
            norms = ClassBalanced(rows, self.pace(deployment.num_classes), labels)
            return deployment.network.logits({**deployment.parameters, **own}, inputs, norms), norms.found

        def loss(own: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, tuple[Rows, Rows, Rows]]]:
            taught, teacher = passed(own, state.teacher, ctx.inputs)
            learnt, student = passed(own, state.student, view)
            # Made here, as the teacher's pass is: rounding would be a distance where there is none, and Adam a step.
            anchored, anchor = passed({}, state.anchor, ctx.inputs)
            certain = entropy_from_logits(taught.detach()) < limit
            lesson = cross_entropy(learnt, taught.detach().argmax(-1), reduction="none")
            away = (taught - anchored).square().mean(-1)
            return masked_mean(lesson + self.anchoring * away, certain), (certain, (teacher, student, anchor))

        slopes, (certain, rows) = grad(loss, has_aux=True)(state.learner.own)
        learner = moved(state.learner, slopes, self.optimiser, self.learning_rate, certain.any())
        plan = plan_with_reliable(self.learning_rate, certain, deployment.accuracy)
        return TribeClient(learner, *tree_map(torch.detach, rows)), plan

    def predict(self, ctx: ClientContext, state: TribeClient) -> Tensor:
        model = {**ctx.deployment.parameters, **state.learner.own, **mixtures(state.teacher)}
        return ctx.deployment.network.logits(model, ctx.inputs).softmax(-1)
