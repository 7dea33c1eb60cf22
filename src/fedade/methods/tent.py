"""TENT: the scales and shifts of normalisation layers descend the entropy of the predictions (Wang et al., ICLR 2021).

Passes normalise with their batch's own statistics. A model without BatchNorm lends its LayerNorm, GroupNorm or RMSNorm
scales.

Batch statistics make it bad under label shift.

A client keeps 12 bytes per scale and shift (the value and two moments of Adam). A timestep costs about 3·steps
forward passes per sample; nothing is sent.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.context import ClientContext
from fedade.core.method import Card, Method, Plan
from fedade.maths.losses.entropy import entropy_from_logits
from fedade.parts.norm_layers import batch_logits, norm_affine, own_batch_logits
from fedade.parts.optimisers import AdamOptimiser
from fedade.parts.participation import Learner
from fedade.parts.statistics import warn_without_batch_norm


class Tent(Method[Learner]):
    """Entropy minimisation at test time, with the published constants."""

    learning_rate: float = Field(1e-3, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    adaptation_steps: int = Field(1, ge=0)
    """Per timestep."""

    @property
    def card(self) -> Card:
        return Card(
            summary="normalisation scales descend the prediction entropy; made for BatchNorm, moves any norm",
            paper="TENT, ICLR 2021",
        )

    def begin(self, ctx: ClientContext) -> Learner:
        own = norm_affine(ctx.deployment, "tent")
        warn_without_batch_norm(ctx.deployment, "tent", "it moves the scales of the norms that the model has")
        return Learner(own, self.optimiser.start(own))

    def observe(self, ctx: ClientContext, state: Learner) -> tuple[Learner, Plan]:
        """Steps on the mean entropy; the trace gets the entropy that the last of them met."""

        def loss(own: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            entropy = entropy_from_logits(batch_logits(ctx.deployment, own, ctx.inputs)).mean()
            return entropy, entropy

        own, moments = state
        entropy = torch.zeros_like(ctx.deployment.accuracy)
        for _ in range(self.adaptation_steps):
            slopes, entropy = grad(loss, has_aux=True)(own)
            directions, moments = self.optimiser.directions(own, slopes, moments)
            own = {name: value - self.learning_rate * directions[name] for name, value in own.items()}
        plan = {"learning_rate": torch.full_like(entropy, self.learning_rate), "entropy": entropy}
        return Learner(own, moments), plan

    def predict(self, ctx: ClientContext, state: Learner) -> Tensor:
        return own_batch_logits(ctx, state.own).softmax(-1)
