"""DeYO: entropy steps on samples whose answer needs the object's shape (Lee et al., ICLR 2024).

A sample is trusted if it is certain, and if its answer loses probability when its image is cut into tiles that are
shuffled: an answer that survives this rests on texture or background. Trusted samples weigh more the more certain they
are and the more they lose. The shuffled images are normalised with the statistics of their whole batch, where the
released code passes the certain ones alone. Of a text, all tokens but the first are shuffled.

A client keeps 12 bytes per scale and shift. A timestep costs about 4 forward passes per sample; nothing is sent.
"""

import math

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.core.tokens import PADDING
from fedade.maths.counter import uniform
from fedade.maths.losses import entropy, entropy_from_logits
from fedade.parts import norm_layers
from fedade.parts.augmentation import refuse_without_views
from fedade.parts.norm_layers import batch_logits, norm_learner, own_batch_logits
from fedade.parts.optimisers import AdamOptimiser, Learner


class Deyo(Method[Learner]):
    """Destroy your object: entropy minimisation on samples that shape decides."""

    about = Card(
        summary="TENT on certain samples whose answer shuffled tiles destroy; made for BatchNorm, moves any norm",
        paper="DeYO, ICLR 2024",
    )

    learning_rate: float = Field(1e-3, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    reliable_entropy: float = Field(0.5, gt=0)
    """τ_E: entropy below which a sample is certain, as a share of ln K."""
    weight_entropy: float = Field(0.4, gt=0)
    """E_0: entropy at which certainty weighs 1, as a share of ln K."""
    least_loss: float = Field(0.2, ge=-2, le=1)
    """τ_P: probability that the answer of a trusted sample loses, at least."""
    tiles: int = Field(4, ge=1)
    """Tiles per side of an image."""
    include_last_stage: bool = False
    """Also move the last stage, whose features are held to be too sensitive."""

    def begin(self, ctx: ClientContext) -> Learner:
        refuse_without_views(ctx.deployment, "deyo")
        return norm_learner(ctx.deployment, "deyo", self.optimiser, self.include_last_stage)

    def observe(self, ctx: ClientContext, state: Learner) -> tuple[Learner, Plan]:
        deployment, scale = ctx.deployment, math.log(ctx.deployment.num_classes)
        answers = own_batch_logits(ctx, state.own).softmax(-1)
        without_shape = batch_logits(deployment, state.own, shuffled(ctx.inputs, ctx.key, self.tiles)).softmax(-1)
        label, sizes = answers.argmax(-1, keepdim=True), entropy(answers)
        lost = (answers - without_shape).gather(-1, label).squeeze(-1)
        trusted = (sizes < self.reliable_entropy * scale) & (lost > self.least_loss)
        weights = torch.exp(self.weight_entropy * scale - sizes) + torch.exp(lost)

        def loss(own: dict[str, Tensor]) -> Tensor:
            found = entropy_from_logits(batch_logits(deployment, own, ctx.inputs))
            return norm_layers.masked_mean(weights * found, trusted)

        plan = norm_layers.plan_with_reliable(self.learning_rate, trusted, sizes)
        return norm_layers.moved(state, grad(loss)(state.own), self.optimiser, self.learning_rate, trusted.any()), plan

    def predict(self, ctx: ClientContext, state: Learner) -> Tensor:
        return own_batch_logits(ctx, state.own).softmax(-1)


def shuffled(inputs: Tensor, key: Tensor, tiles: int) -> Tensor:
    """Images cut into tiles per side that are shuffled, each image in its own way; of texts, the tokens. Where tiles do
    not divide a side, the pixels beyond them are left out."""
    if inputs.ndim == 2:
        draws = uniform(key, tuple(inputs.shape))
        places = torch.arange(inputs.shape[-1], device=inputs.device)
        last = torch.where(inputs == PADDING, 2.0 + places, draws)
        return inputs.gather(-1, torch.where(places == 0, -1.0, last).argsort(-1))
    images, channels, height, width = inputs.shape
    across, down = max(1, width // tiles), max(1, height // tiles)
    columns, rows = min(tiles, width), min(tiles, height)
    cut = inputs[..., : rows * down, : columns * across].reshape(images, channels, rows, down, columns, across)
    pieces = cut.permute(0, 2, 4, 1, 3, 5).reshape(images, rows * columns, channels, down, across)
    order = uniform(key, (images, rows * columns)).argsort(-1)
    mixed = pieces.gather(1, order.reshape(images, -1, 1, 1, 1).expand_as(pieces))
    whole = mixed.reshape(images, rows, columns, channels, down, across).permute(0, 3, 1, 4, 2, 5)
    return whole.reshape(images, channels, rows * down, columns * across)
