"""CoTTA: a student follows a slow teacher, and weights return to the source at random (Wang et al., CVPR 2022).

The teacher is a running average of the student. Where the deployed model is unsure of a batch, the teacher's answer is
an average over random views of it. Each weight goes back to its deployed value with a small probability, so that
nothing is forgotten for good. Predictions are the teacher's, and passes normalise with their batch's own statistics.
A view of a text lacks some of its tokens.

These make it bad under label shift. Accuracy with (label, covariate) shift on digits, 30 clients of 30 samples, T = 50,
with views=8: source 75.2 and 58.6, CoTTA 68.6 and 65.9, as batch statistics alone: a teacher that moves by a thousandth
per step goes nowhere in 50. A faster one is worse (teacher_momentum=0.9, views=2: 66.1 and 62.6).

A client keeps 16·|θ| bytes: student, teacher and two moments of Adam. A timestep costs about 5 + `views` forward passes
per sample, whether or not the views are used, since clients are computed together; nothing is sent.
"""

from typing import NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.func import grad

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.method import Card, Observation
from fedade.maths.counter import uniform
from fedade.parts.augmentation import augmentations, deletions
from fedade.parts.norm_layers import adaptable, batch_logits
from fedade.parts.optimisers import AdamOptimiser, OptimiserState
from fedade.parts.statistics import warn_without_batch_norm

_RESTORATION = 100
"""Purpose of the draws that choose weights, beside those of the views."""
_VIEWS = {4: augmentations, 2: deletions}
"""By the number of axes of a batch: images and texts."""


class CottaClient(NamedTuple):
    """Two models of its own: one that learns and one that answers."""

    student: dict[str, Tensor]
    teacher: dict[str, Tensor]
    state: OptimiserState


class Cotta(BaseModel):
    """Continual test-time adaptation, with the constants of the paper's CIFAR-10 experiments."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rate: float = Field(1e-3, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    teacher_momentum: float = Field(0.999, ge=0, le=1)
    anchor_confidence: float = Field(0.92, ge=0, le=1)
    """Mean confidence of the deployed model below which the teacher averages over views; 0.72 for CIFAR-100."""
    views: int = Field(32, ge=0)
    restoration: float = Field(0.01, ge=0, le=1)
    """Probability with which a weight returns to its deployed value."""

    @property
    def card(self) -> Card:
        return Card(
            summary="student follows a slow teacher; weights restored at random; made for BatchNorm, moves any norm",
            paper="CoTTA, CVPR 2022",
        )

    def init_client(self, deployment: Deployment) -> CottaClient:
        if deployment.reference.inputs.ndim not in _VIEWS:
            shape = tuple(deployment.reference.inputs.shape[1:])
            raise FedadeError(f"cotta: needs images or texts, but inputs have the shape {shape}; choose another method")
        warn_without_batch_norm(deployment, "cotta", "it moves the scales of other norms with all else")
        own = adaptable(deployment)
        return CottaClient(own, own, self.optimiser.start(own))

    def observe(
        self, deployment: Deployment, client: CottaClient, shared: tuple[()], observation: Observation
    ) -> tuple[CottaClient, dict[str, Tensor]]:
        """Student towards teacher, teacher towards student, then the random return to the source."""
        inputs, source = observation.inputs, adaptable(deployment)
        confidence = batch_logits(deployment, source, inputs).softmax(-1).max(-1).values.mean()
        unsure = confidence < self.anchor_confidence
        target = torch.where(
            unsure,
            self._over_views(deployment, client.teacher, observation),
            batch_logits(deployment, client.teacher, inputs),
        ).softmax(-1)

        def loss(student: dict[str, Tensor]) -> Tensor:
            return -(target * batch_logits(deployment, student, inputs).log_softmax(-1)).sum(-1).mean()

        directions, state = self.optimiser.directions(client.student, grad(loss)(client.student), client.state)
        student = {name: value - self.learning_rate * directions[name] for name, value in client.student.items()}
        teacher = {
            name: self.teacher_momentum * value + (1 - self.teacher_momentum) * student[name]
            for name, value in client.teacher.items()
        }
        student = _restored(student, source, self.restoration, observation.key)
        plan = {
            "learning_rate": torch.full_like(confidence, self.learning_rate),
            "anchor_confidence": confidence,
            "averaged_views": unsure.to(confidence.dtype),
        }
        return CottaClient(student, teacher, state), plan

    def predict(self, deployment: Deployment, client: CottaClient, shared: tuple[()], inputs: Tensor) -> Tensor:
        return batch_logits(deployment, client.teacher, inputs).softmax(-1)

    def _over_views(self, deployment: Deployment, teacher: dict[str, Tensor], observation: Observation) -> Tensor:
        """Mean logits of random views."""
        if not self.views:
            return batch_logits(deployment, teacher, observation.inputs)
        views = _VIEWS[observation.inputs.ndim](observation.inputs, observation.key, self.views)
        total = torch.zeros((), device=observation.inputs.device)
        for view in views:
            total = total + batch_logits(deployment, teacher, view)
        return total / self.views


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
