"""ROID: diverse and certain samples, a soft likelihood ratio, and weights pulled back (Marsden et al., WACV 2024).

Samples whose answers differ from what was answered lately, and that are certain, weigh more. The loss is a soft
likelihood ratio, which does not fade for certain samples, with the agreement of a sample and a random view of it. After
every step the weights go a little way back to the deployed ones. Answers are corrected by the batch's own smoothed
class frequencies. The released correction multiplies logits, which depends on their zero (`correction="bayes"` adds the
logarithm of the frequencies instead). The view is made of the whole batch, where the released code normalises the kept
half alone.

A client keeps 12 bytes per scale and shift. A timestep costs about 6 forward passes per sample; nothing is sent.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.func import grad
from torch.nn.functional import cosine_similarity

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.maths.losses import entropy
from fedade.parts.augmentation import random_view, refuse_without_views
from fedade.parts.norm_layers import batch_logits, moved, norm_learner, own_batch_logits, plan_with_reliable
from fedade.parts.optimisers import AdamOptimiser, Learner

MOST_CERTAIN = 0.99
LEAST_RATIO = 1e-5
EQUAL = 1e-12
"""Range below which values count as equal."""


class RoidClient(NamedTuple):
    """Scales and shifts with their optimiser, and a running mean of the answers."""

    learner: Learner
    answered: Tensor  # [K]


class Roid(Method[RoidClient]):
    """Universal test-time adaptation through weight ensembling, diversity weighting and prior correction."""

    about = Card(
        "certain and diverse samples, weights pulled back to the deployed ones; made for BatchNorm", "ROID, WACV 2024"
    )

    learning_rate: float = Field(1e-3, ge=0)
    optimiser: AdamOptimiser = AdamOptimiser()
    temperature: float = Field(1 / 3, gt=0)
    """τ of the weights of samples."""
    pull: float = Field(0.01, ge=0, le=1)
    """Share of the deployed weights after every step."""
    answers_memory: float = Field(0.9, ge=0, le=1)
    """Share of its past that the mean answer keeps."""
    correction: Literal["released", "bayes", "none"] = "released"
    """How the batch's class frequencies enter an answer."""

    def begin(self, ctx: ClientContext) -> RoidClient:
        refuse_without_views(ctx.deployment, "roid")
        learner = norm_learner(ctx.deployment, "roid", self.optimiser)
        even = torch.full_like(ctx.deployment.source_prior, 1 / ctx.deployment.num_classes)
        return RoidClient(learner, even)

    def observe(self, ctx: ClientContext, state: RoidClient) -> tuple[RoidClient, Plan]:
        deployment, view = ctx.deployment, random_view(ctx.inputs, ctx.key)
        answers = own_batch_logits(ctx, state.learner.own).softmax(-1)
        weights = sample_weights(answers, state.answered, self.temperature)

        def loss(own: dict[str, Tensor]) -> Tensor:
            logits, seen = (batch_logits(deployment, own, inputs) for inputs in (ctx.inputs, view))
            return (weights * (soft_likelihood_ratio(logits) + disagreement(logits, seen))).mean()

        learner = moved(state.learner, grad(loss)(state.learner.own), self.optimiser, self.learning_rate)
        own = {name: torch.lerp(value, deployment.parameters[name], self.pull) for name, value in learner.own.items()}
        answered = torch.lerp(answers.mean(0), state.answered, self.answers_memory)
        plan = plan_with_reliable(self.learning_rate, weights > 0, answered)
        return RoidClient(learner._replace(own=own), answered), plan

    def predict(self, ctx: ClientContext, state: RoidClient) -> Tensor:
        logits = own_batch_logits(ctx, state.learner.own)
        if self.correction == "none":
            return logits.softmax(-1)
        prior = smoothed_frequencies(logits.softmax(-1))
        return (logits * prior if self.correction == "released" else logits + prior.log()).softmax(-1)


def sample_weights(answers: Tensor, answered: Tensor, temperature: float) -> Tensor:
    """exp(diversity · certainty / τ), `[n]`; 0 where an answer is less diverse than the batch's mean."""
    diversity = _scaled(1 - cosine_similarity(answers, answered.unsqueeze(0), dim=-1))
    certainty = _scaled(-entropy(answers))
    return torch.where(diversity >= diversity.mean(), torch.exp(diversity * certainty / temperature), 0.0)


def soft_likelihood_ratio(logits: Tensor) -> Tensor:
    """-Σ q ln(q / (1 - q)), `[n]`, of probabilities that stay below 1."""
    probabilities = logits.softmax(-1).clamp_max(MOST_CERTAIN)
    return -(probabilities * torch.log(probabilities / (1 - probabilities) + LEAST_RATIO)).sum(-1)


def disagreement(one: Tensor, other: Tensor) -> Tensor:
    """Symmetric cross-entropy, `[n]`, of two sets of logits; both learn."""
    return -0.5 * (one.softmax(-1) * other.log_softmax(-1) + other.softmax(-1) * one.log_softmax(-1)).sum(-1)


def smoothed_frequencies(answers: Tensor) -> Tensor:
    """Class frequencies of a batch, the less even they are the less is added to all of them."""
    samples, classes = answers.shape
    frequencies = answers.mean(0)
    added = max(1 / samples, 1 / classes) / frequencies.max()
    return (frequencies + added) / (1 + added * classes)


def _scaled(values: Tensor) -> Tensor:
    """Values from 0 to 1 over the batch; 0 where all are equal."""
    low, high = values.min(), values.max()
    reach = high - low
    return torch.where(reach < EQUAL, 0.0, (values - low) / reach.clamp_min(EQUAL))
