"""FLH-FTL (Baby et al., NeurIPS 2023): track the class prior with windows of all lengths, weighted by their forecasts.

Reweights the frozen classifier by a mix of running means of estimated priors, one mean per start time, so that it
remembers far back while nothing changes and forgets after a change. The pool is pruned to O(K log T). Corrupted inputs
look like a change of classes to it.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, Method, Plan
from fedade.maths.priors.simplex import mix_with_uniform, normalise
from fedade.parts.priors import UNIFORM_SHARE, Estimator, batch_prior, refuse_unsafe_inverse, reweighted

PER_LEVEL = 2


class LeadingHistory(NamedTuple):
    """The pool of experts; a place without an expert has length and weight 0."""

    means: Float[Tensor, "L 2 K"]
    lengths: Float[Tensor, "L 2"]
    """Number of estimates that each mean is taken over."""
    weights: Float[Tensor, "L 2"]
    elapsed: Int[Tensor, ""]
    """Estimates seen: the start of the next expert."""


def no_history(horizon: int, like: Float[Tensor, " K"]) -> LeadingHistory:
    """The pool before the first estimate, with the levels that a horizon needs: O(K log T) numbers. A run may outlast
    the horizon; then the longest windows are of its order."""
    places = like.new_zeros(horizon.bit_length(), PER_LEVEL)
    means = like.new_zeros(*places.shape, len(like))
    return LeadingHistory(means, places, places, torch.zeros((), dtype=torch.int64, device=like.device))


def forecast(history: LeadingHistory, fallback: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    """q̃ = Σ_s v_s m_s over the experts; the fallback before the first estimate."""
    return normalise((history.weights.unsqueeze(-1) * history.means).sum((0, 1)), fallback)


def follow(history: LeadingHistory, estimate: Float[Tensor, " K"], rate: float) -> LeadingHistory:
    """The pool after an estimate q̂: v_s ∝ v_s exp(-rate ‖m_s - q̂‖²), then a newcomer with weight 1/(t+1)."""
    losses = (history.means - estimate).square().sum(-1)
    masses = history.weights * (-rate * losses).exp()
    weights = normalise(masses.flatten(), history.weights.flatten()).reshape(masses.shape)
    lengths = torch.where(history.lengths > 0, history.lengths + 1, 0)
    means = history.means + (estimate - history.means) / lengths.clamp_min(1).unsqueeze(-1)

    here = _place(history)
    share = 1 / (history.elapsed + 1)
    return LeadingHistory(
        torch.where(here.unsqueeze(-1), estimate, means),
        torch.where(here, 1, lengths),
        torch.where(here, share, (1 - share) * _bequeath(weights, history.lengths, here)),
        history.elapsed + 1,
    )


def _place(history: LeadingHistory) -> Tensor:
    """Where the next expert goes, as a mask: an empty place of its level, or that of the older expert."""
    levels = torch.arange(len(history.lengths), device=history.elapsed.device)
    level = (history.elapsed % 2 ** levels[1:] == 0).sum()
    oldest = torch.where(history.lengths == 0, torch.inf, history.lengths).argmax(-1, keepdim=True)
    places = torch.arange(PER_LEVEL, device=levels.device)
    return (levels == level).unsqueeze(-1) & (places == oldest)


def _bequeath(weights: Tensor, lengths: Tensor, leaving: Tensor) -> Tensor:
    """Weights without the leaving expert's, which goes to the one of nearest start. Shared out among all it would feed
    the longest windows, which never leave, and slow down every later change."""
    length = torch.where(leaving, lengths, 0).sum()
    distances = torch.where((lengths > 0) & ~leaving, (lengths - length).abs(), torch.inf).flatten()
    heir = torch.arange(len(distances), device=distances.device) == distances.argmin()
    return torch.where(leaving, 0, weights) + heir.reshape(weights.shape) * torch.where(leaving, weights, 0).sum()


class FlhFtl(Method[LeadingHistory]):
    """Frozen classifier times a class prior tracked over all window lengths."""

    about = Card(
        summary="deployed model reweighted by a class prior tracked over all window lengths",
        paper="Baby et al., NeurIPS 2023",
        reweights=True,
        keeps_body=True,
    )

    prior: Estimator = "simplex_ls"
    horizon: int = Field(100, ge=1)
    """T: windows as long as this are kept; a longer stream is fine."""
    forecast_rate: float | None = Field(None, gt=0)
    """α: how fast bad forecasts cost an expert its weight; None: the published 1/K."""
    uniform_share: float = Field(UNIFORM_SHARE, ge=0, le=1)
    """Share of the uniform distribution in the forecast."""

    def begin(self, ctx: ClientContext) -> LeadingHistory:
        refuse_unsafe_inverse(ctx.deployment, self.prior)
        return no_history(self.horizon, ctx.deployment.source_prior)

    def observe(self, ctx: ClientContext, state: LeadingHistory) -> tuple[LeadingHistory, Plan]:
        """Weigh the experts by how they forecast this batch's prior, then let them all learn it."""
        estimate = batch_prior(ctx, self.prior)
        history = follow(state, estimate, self.forecast_rate or 1 / ctx.deployment.num_classes)
        return history, {"prior": self._forecast(ctx.deployment, history)}

    def predict(self, ctx: ClientContext, state: LeadingHistory) -> Tensor:
        return reweighted(ctx, self._forecast(ctx.deployment, state))

    def _forecast(self, deployment: Deployment, history: LeadingHistory) -> Tensor:
        return mix_with_uniform(forecast(history, deployment.source_prior), self.uniform_share)
