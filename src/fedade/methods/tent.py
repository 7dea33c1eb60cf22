"""TENT: the scales and shifts of normalisation layers descend the entropy of the predictions (Wang et al., ICLR 2021).

Passes normalise with their batch's own statistics. A model without BatchNorm lends its LayerNorm, GroupNorm or RMSNorm
scales. Batch statistics make it bad under label shift.

A client keeps 12 bytes per scale and shift (the value and two moments of Adam). A timestep costs about 3·steps forward
passes per sample; nothing is sent.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.maths.losses import entropy_from_logits
from fedade.parts.norm_layers import batch_logits, moved, norm_learner, own_batch_logits
from fedade.parts.optimisers import AdamOptimiser, Learner
from fedade.parts.rates import constant_rate


class Tent(Method[Learner]):
    """Entropy minimisation at test time, with the published constants."""

    about = Card(
        "normalisation scales descend the prediction entropy; made for BatchNorm, moves any norm", "TENT, ICLR 2021"
    )

    learning_rate: float = Field(1e-3, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    adaptation_steps: int = Field(1, ge=0)
    """Steps per timestep."""

    def begin(self, ctx: ClientContext) -> Learner:
        return norm_learner(ctx.deployment, "tent", self.optimiser)

    def observe(self, ctx: ClientContext, state: Learner) -> tuple[Learner, Plan]:
        """Steps on the mean entropy; the trace gets the entropy that the last of them met."""

        def loss(own: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            entropy = entropy_from_logits(batch_logits(ctx.deployment, own, ctx.inputs)).mean()
            return entropy, entropy

        entropy = torch.zeros_like(ctx.deployment.accuracy)
        for _ in range(self.adaptation_steps):
            slopes, entropy = grad(loss, has_aux=True)(state.own)
            state = moved(state, slopes, self.optimiser, self.learning_rate)
        return state, {"learning_rate": constant_rate(self.learning_rate, entropy), "entropy": entropy}

    def predict(self, ctx: ClientContext, state: Learner) -> Tensor:
        return own_batch_logits(ctx, state.own).softmax(-1)
