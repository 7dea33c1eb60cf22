"""DELTA: TENT with renormalised batches and classes that count alike (Zhao et al., ICLR 2023).

Batches are normalised by a running average of their statistics while gradients take the way through the batch's own
(test-time batch renormalisation). Samples of classes that were predicted often count less in the loss (dynamic online
reweighting). The average begins with the first batch, as released; with fewer than 50 samples that is too little, and
it begins with the deployed statistics (`start`).

A client keeps 12 bytes per scale and shift and 8 per normalised channel. A timestep costs about 3 forward passes per
sample; nothing is sent.
"""

import math
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.core.normalisation import Statistics
from fedade.maths.losses import entropy, entropy_from_logits
from fedade.parts.norm_layers import masked_mean, moved, norm_learner, plan_with_reliable
from fedade.parts.optimisers import AdamOptimiser, Learner
from fedade.parts.running_norms import EPSILON, Renormalised, batch_norm_layers

ENOUGH_TO_START = 50
LEAST_FREQUENCY = 1e-6


class DeltaClient(NamedTuple):
    """Scales and shifts with their optimiser, running statistics, and how often classes were predicted."""

    learner: Learner
    known: dict[str, Statistics]
    """Running means and squared deviations, by layer."""
    batches: Tensor
    frequencies: Tensor  # [K]


class Delta(Method[DeltaClient]):
    """Degradation-free fully test-time adaptation: test-time batch renormalisation and dynamic online reweighting."""

    about = Card(
        summary="TENT with running statistics and classes that count alike; made for BatchNorm, moves any norm",
        paper="DELTA, ICLR 2023",
    )

    learning_rate: float = Field(1e-3, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    base: Literal["tent", "weighted"] = "tent"
    """The entropy of all samples, or of the certain ones, weighed by how certain they are."""
    statistics_memory: float = Field(0.95, ge=0, le=1)
    """α: share of the past in the running statistics."""
    frequency_memory: float = Field(0.95, ge=0, le=1)
    """λ: share of the past in the classes' frequencies; 1: all samples count alike."""
    reliable_entropy: float = Field(0.5, gt=0)
    """`weighted`: entropy below which a sample is used, as a share of ln K."""
    start: Literal["auto", "batch", "source"] = "auto"
    """What running statistics begin with; `auto`: the first batch if it has 50 samples."""

    def begin(self, ctx: ClientContext) -> DeltaClient:
        deployment = ctx.deployment
        learner = norm_learner(deployment, "delta", self.optimiser)
        known = {
            layer: Statistics(mean, variance + EPSILON)
            for layer, (mean, variance) in batch_norm_layers(deployment).items()
        }
        even = torch.full_like(deployment.source_prior, 1 / deployment.num_classes)
        return DeltaClient(learner, known, torch.zeros_like(even[0]), even)

    def observe(self, ctx: ClientContext, state: DeltaClient) -> tuple[DeltaClient, Plan]:
        limit = self.reliable_entropy * math.log(ctx.deployment.num_classes)

        def loss(own: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, dict[str, Statistics]]]:
            norms = self._norms(ctx, state)
            logits = ctx.deployment.network.logits({**ctx.deployment.parameters, **own}, ctx.inputs, norms)
            sizes, answers = entropy_from_logits(logits), logits.detach().softmax(-1)
            weights, used = even_weights(answers, state.frequencies), torch.ones_like(sizes, dtype=torch.bool)
            if self.base == "weighted":
                weights, used = weights * torch.exp(limit - sizes.detach()), sizes.detach() < limit
            return masked_mean(weights * sizes, used), (answers, norms.seen)

        slopes, (answers, seen) = grad(loss, has_aux=True)(state.learner.own)
        used = entropy(answers) < limit if self.base == "weighted" else torch.ones_like(answers[:, 0], dtype=torch.bool)
        learner = moved(state.learner, slopes, self.optimiser, self.learning_rate, used.any())
        frequencies = torch.lerp(answers.mean(0), state.frequencies, self.frequency_memory)
        plan = plan_with_reliable(self.learning_rate, used, frequencies)
        return DeltaClient(learner, self._followed(ctx, state, seen), state.batches + 1, frequencies), plan

    def predict(self, ctx: ClientContext, state: DeltaClient) -> Tensor:
        model = {**ctx.deployment.parameters, **state.learner.own}
        return ctx.deployment.network.logits(model, ctx.inputs, self._norms(ctx, state)).softmax(-1)

    def _norms(self, ctx: ClientContext, state: DeltaClient) -> Renormalised:
        return Renormalised(state.known, self._starts_with_batch(ctx, state))

    def _starts_with_batch(self, ctx: ClientContext, state: DeltaClient) -> Tensor:
        wanted = self.start == "batch" or (self.start == "auto" and len(ctx.inputs) >= ENOUGH_TO_START)
        return state.batches == 0 if wanted else state.batches < 0

    def _followed(self, ctx: ClientContext, state: DeltaClient, seen: dict[str, Statistics]) -> dict[str, Statistics]:
        fresh, share = self._starts_with_batch(ctx, state), self.statistics_memory

        def average(old: Tensor, new: Tensor) -> Tensor:
            return torch.where(fresh, new, torch.lerp(new, old, share))

        return {
            layer: Statistics(
                average(old.mean, seen[layer].mean),
                average(old.variance.sqrt(), seen[layer].variance.sqrt()).square(),
            )
            for layer, old in state.known.items()
        }


def even_weights(answers: Tensor, frequencies: Tensor) -> Tensor:
    """Weights `[n]` of mean 1, in inverse proportion to how often each sample's predicted class came before."""
    inverse = 1 / frequencies.clamp_min(LEAST_FREQUENCY)[answers.argmax(-1)]
    return len(inverse) * inverse / inverse.sum()
