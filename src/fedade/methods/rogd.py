"""ROGD, online gradient descent on the reweighting vector (Wu et al., NeurIPS 2021).

The frozen classifier is reweighted by p / μ0, and p descends the estimated expected error of that classifier, with the
soft posterior in place of the 0-1 decision, which gives a closed-form gradient on the reference set. Its published step
is small, since the error is steep where a class has almost no weight. So it is slow, but loses little where the
estimated prior is wrong.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, Method, Plan
from fedade.maths.counter import uniform
from fedade.maths.losses import one_hot
from fedade.maths.priors.simplex import project_to_simplex
from fedade.parts.priors import Estimator, batch_prior, calibrated_probabilities, refuse_unsafe_inverse, reweighted

_HIGHEST_FLOOR_SHARE = 0.1
_RANDOM_POINTS = 100


class RogdClient(NamedTuple):
    """The reweighting vector and the step size of its descent."""

    weights: Tensor
    learning_rate: Tensor


class Rogd(Method[RogdClient]):
    """Frozen classifier times a vector that descends the estimated error."""

    about = Card(
        summary="deployed model reweighted by a vector that descends its estimated error",
        paper="Wu et al., NeurIPS 2021",
        reference=True,
        keeps_body=True,
    )

    prior: Estimator = "simplex_ls"
    horizon: int = Field(100, ge=1)
    """T of the step size √(2/T) / L."""
    floor: float = Field(0.01, ge=0)
    """Least weight of a class, as published for ten; with more classes at most a tenth of the uniform weight."""
    learning_rate: float | None = Field(None, gt=0)
    """None: √(2/T) / L, L the steepest slope found on the simplex."""

    def begin(self, ctx: ClientContext) -> RogdClient:
        refuse_unsafe_inverse(ctx.deployment, self.prior)
        source = ctx.deployment.source_prior
        given = self.learning_rate
        rate = self._published_rate(ctx.deployment) if given is None else torch.full_like(source[0], given)
        return RogdClient(source, rate)

    def observe(self, ctx: ClientContext, state: RogdClient) -> tuple[RogdClient, Plan]:
        """p ← Proj(p - η ∇ℓ(p; q̂))."""
        deployment, prior = ctx.deployment, batch_prior(ctx, self.prior)
        answers, labels = (
            calibrated_probabilities(deployment, deployment.reference_features),
            deployment.reference.labels,
        )
        slopes = class_error_slopes(answers, labels, state.weights, deployment.source_prior)
        descended = state.weights - state.learning_rate * (prior @ slopes)
        weights = project_above(descended, self._floor(deployment))
        return state._replace(weights=weights), {"prior": prior, "learning_rate": state.learning_rate}

    def predict(self, ctx: ClientContext, state: RogdClient) -> Tensor:
        return reweighted(ctx, state.weights)

    def _floor(self, deployment: Deployment) -> float:
        return min(self.floor, _HIGHEST_FLOOR_SHARE / deployment.num_classes)

    def _published_rate(self, deployment: Deployment) -> Tensor:
        """√(2/T) / L, with L over the corners of the floored simplex, its centre and random points of it."""
        classes, like = deployment.num_classes, deployment.source_prior
        key = torch.zeros((), dtype=torch.int64, device=like.device)
        random = -torch.log1p(-uniform(key, (_RANDOM_POINTS, classes))).to(like.dtype)
        candidates = torch.cat([
            torch.eye(classes, dtype=like.dtype, device=like.device),
            torch.full_like(like, 1 / classes).unsqueeze(0),
            random / random.sum(-1, keepdim=True),
        ])  # fmt: skip
        points = torch.stack([project_above(point, self._floor(deployment)) for point in candidates])
        probabilities = calibrated_probabilities(deployment, deployment.reference_features)
        steepest = steepest_slope(probabilities, deployment.reference.labels, points, like)
        return math.sqrt(2 / self.horizon) / steepest.clamp_min(torch.finfo(like.dtype).tiny)


def class_error_slopes(
    probabilities: Float[Tensor, "n K"],
    labels: Int[Tensor, " n"],
    weights: Float[Tensor, " K"],
    source_prior: Float[Tensor, " K"],
) -> Float[Tensor, "K K"]:
    """Row j: gradient by p of class j's error, -mean_{y=j} [a_j 1{i=j} / s - a_i a_j p_j / s²]. The gradient of the
    expected error under a prior q is q @ slopes. A class without samples has slope 0."""
    membership = one_hot(labels, len(weights), probabilities.dtype)
    odds = probabilities / source_prior.clamp_min(torch.finfo(source_prior.dtype).eps)
    odds = odds / (odds @ weights).unsqueeze(-1)
    own = (membership * odds).sum(-1, keepdim=True)
    own_weight = (membership @ weights).unsqueeze(-1)
    per_sample = odds * own * own_weight - membership * own
    return (membership / membership.sum(0).clamp_min(1)).mT @ per_sample


def steepest_slope(
    probabilities: Float[Tensor, "n K"],
    labels: Int[Tensor, " n"],
    points: Float[Tensor, "P K"],
    source_prior: Float[Tensor, " K"],
) -> Float[Tensor, ""]:
    """L: the largest norm of the expected error's gradient at any of the points, under any class prior."""
    # The gradient is linear in the prior, so a norm is largest where the prior is a single class.
    norms = [class_error_slopes(probabilities, labels, point, source_prior).norm(dim=-1) for point in points]
    return torch.stack(norms).max()


def project_above(vector: Float[Tensor, " K"], floor: float) -> Float[Tensor, " K"]:
    """Nearest distribution without an entry below the floor, which must be less than 1/K."""
    rest = 1 - floor * len(vector)
    return floor + rest * project_to_simplex((vector - floor) / rest)
