"""Follow the leading history over running means: FLH-FTL (Baby et al., 2023) in memory that does not grow.

Every timestep starts an expert, the mean of all estimates since; exponential weights choose between short and long
windows. Experts are known by their start, numbered from 0. Start r·2^k, with r odd, is of level k, and each level keeps
its latest two experts: a window of length 2^k lives for 2^(k+2) timesteps (Hazan and Seshadhri, 2009), the one that
starts at 0 as long as the horizon lasts.

Axes: L levels, K classes.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedade.maths.simplex import normalise

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
    """The pool before the first estimate, with the levels that a horizon needs: O(K log T) numbers.

    A run may outlast the horizon; then the longest windows are of its order.
    """
    places = like.new_zeros(horizon.bit_length(), PER_LEVEL)
    means = like.new_zeros(*places.shape, len(like))
    return LeadingHistory(means, places, places, torch.zeros((), dtype=torch.int64, device=like.device))


def forecast(history: LeadingHistory, fallback: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    """q̃ = Σ_s v_s m_s over the experts; the fallback before the first estimate."""
    return normalise((history.weights.unsqueeze(-1) * history.means).sum((0, 1)), fallback)


def follow(history: LeadingHistory, estimate: Float[Tensor, " K"], rate: float) -> LeadingHistory:
    """The pool after an estimate q̂: v_s ∝ v_s exp(-rate ‖m_s - q̂‖²), then a newcomer with weight 1/(t+1)."""
    losses = (history.means - estimate).square().sum(-1)
    weights = _shares(history.weights * (-rate * losses).exp(), history.weights)
    lengths = torch.where(history.lengths > 0, history.lengths + 1, 0)
    means = history.means + (estimate - history.means) / lengths.clamp_min(1).unsqueeze(-1)

    here = _place(history)
    share = 1 / (history.elapsed + 1)
    others = torch.where(here, 0, weights)
    weights = torch.where(here, share, (1 - share) * _shares(others, others))
    return LeadingHistory(
        torch.where(here.unsqueeze(-1), estimate, means),
        torch.where(here, 1, lengths),
        _shares(weights, weights),
        history.elapsed + 1,
    )


def _shares(masses: Tensor, fallback: Tensor) -> Tensor:
    """Masses scaled to sum to 1 over the whole pool; the fallback where nothing is left."""
    return normalise(masses.flatten(), fallback.flatten()).reshape(masses.shape)


def _place(history: LeadingHistory) -> Tensor:
    """Where the next expert goes, as a mask: an empty place of its level, or that of the older expert."""
    levels = torch.arange(len(history.lengths), device=history.elapsed.device)
    level = (history.elapsed % 2 ** levels[1:] == 0).sum()
    oldest = torch.where(history.lengths == 0, torch.inf, history.lengths).argmax(-1, keepdim=True)
    places = torch.arange(PER_LEVEL, device=levels.device)
    return (levels == level).unsqueeze(-1) & (places == oldest)
