"""CoTTA: a student follows a slow teacher, and weights return to the source at random (Wang et al., CVPR 2022).

The teacher is a running average of the student. Where the deployed model is unsure of a batch, the teacher's answer is
an average over random views of it. Each weight goes back to its deployed value with a small probability, so that
nothing is forgotten for good. Predictions are the teacher's, and passes normalise with their batch's own statistics. A
view of a text lacks some of its tokens. These make it bad under label shift, and a teacher that moves by a thousandth
per step goes nowhere in a short stream.

A client keeps 16·|θ| bytes: student, teacher and two moments of Adam. A timestep costs about 5 + `views` forward passes
per sample, whether or not the views are used, since clients are computed together; nothing is sent.
"""

from functools import reduce
from typing import NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.maths.counter import uniform
from fedade.parts.augmentation import refuse_without_views, views
from fedade.parts.norm_layers import adaptable, batch_logits, own_batch_logits, warn_without_batch_norm
from fedade.parts.optimisers import AdamOptimiser, OptimiserState
from fedade.parts.rates import constant_rate
from fedade.parts.running_norms import FEW_CLASSES

_RESTORATION = 100
"""Purpose of the draws that choose weights, beside those of the views."""


class CottaClient(NamedTuple):
    """Two models of its own: one that learns and one that answers."""

    student: dict[str, Tensor]
    teacher: dict[str, Tensor]
    state: OptimiserState


class Cotta(Method[CottaClient]):
    """Continual test-time adaptation, with the constants of the paper's CIFAR experiments."""

    about = Card(
        summary="student follows a slow teacher; weights restored at random; made for BatchNorm, moves any norm",
        paper="CoTTA, CVPR 2022",
    )

    learning_rate: float = Field(1e-3, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    teacher_momentum: float = Field(0.999, ge=0, le=1)
    """Share of itself that the teacher keeps at a step."""
    anchor_confidence: float | None = Field(None, ge=0, le=1)
    """Mean confidence of the deployed model below which the teacher averages over views; None: 0.92, or 0.72 from 100
    classes on."""
    views: int = Field(32, ge=0)
    """Augmented views that the teacher answers."""
    restoration: float = Field(0.01, ge=0, le=1)
    """Probability with which a weight returns to its deployed value."""

    def begin(self, ctx: ClientContext) -> CottaClient:
        deployment = ctx.deployment
        refuse_without_views(deployment, "cotta")
        warn_without_batch_norm(deployment, "cotta", "it moves the scales of other norms with all else")
        own = adaptable(deployment)
        return CottaClient(own, own, self.optimiser.start(own))

    def observe(self, ctx: ClientContext, state: CottaClient) -> tuple[CottaClient, Plan]:
        """Student towards teacher, teacher towards student, then the random return to the source."""
        deployment, inputs, source = ctx.deployment, ctx.inputs, adaptable(ctx.deployment)
        confidence = batch_logits(deployment, source, inputs).softmax(-1).max(-1).values.mean()
        published = 0.92 if deployment.num_classes < FEW_CLASSES else 0.72
        unsure = confidence < (published if self.anchor_confidence is None else self.anchor_confidence)
        answers = own_batch_logits(ctx, state.teacher)
        if self.views:
            seen = (batch_logits(deployment, state.teacher, view) for view in views(inputs, ctx.key, self.views))
            answers = torch.where(unsure, reduce(torch.add, seen) / self.views, answers)
        target = answers.softmax(-1)

        def loss(student: dict[str, Tensor]) -> Tensor:
            return -(target * batch_logits(deployment, student, inputs).log_softmax(-1)).sum(-1).mean()

        directions, moments = self.optimiser.directions(state.student, grad(loss)(state.student), state.state)
        student = {name: value - self.learning_rate * directions[name] for name, value in state.student.items()}
        teacher = {
            name: self.teacher_momentum * value + (1 - self.teacher_momentum) * student[name]
            for name, value in state.teacher.items()
        }
        student = _restored(student, source, self.restoration, ctx.key)
        told = {"anchor_confidence": confidence, "averaged_views": unsure.to(confidence.dtype)}
        plan = {"learning_rate": constant_rate(self.learning_rate, confidence), **told}
        return CottaClient(student, teacher, moments), plan

    def predict(self, ctx: ClientContext, state: CottaClient) -> Tensor:
        return own_batch_logits(ctx, state.teacher).softmax(-1)


def _restored(
    parameters: dict[str, Tensor], source: dict[str, Tensor], probability: float, key: Tensor
) -> dict[str, Tensor]:
    """Each weight with the given probability as deployed (stochastic restoration, Eq. 8)."""
    sizes = [value.numel() for value in parameters.values()]
    draws = torch.split(uniform(key, (sum(sizes),), _RESTORATION), sizes)
    return {
        name: torch.where(draw.reshape(value.shape) < probability, source[name], value)
        for (name, value), draw in zip(parameters.items(), draws, strict=True)
    }
