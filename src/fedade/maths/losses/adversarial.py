"""Domains told apart by a discriminator that the features try to mislead. Axes: m source samples, n target samples."""

import torch
from jaxtyping import Float, Real
from torch import Tensor
from torch.nn.functional import logsigmoid

WARM_UP = 1000.0
"""Steps on whose scale the reversed gradient grows to full strength (Transfer-Learning-Library, and UAN's own code)."""


def reversal_strength(step: Real[Tensor, ""]) -> Float[Tensor, ""]:
    """2 / (1 + e^(-i/1000)) - 1: 0 at first, 1 in the end (DANN, Ganin et al., 2016)."""
    return 2 * torch.sigmoid(step / WARM_UP) - 1


def gradient_reversal(values: Float[Tensor, "*S"], strength: Float[Tensor, ""]) -> Float[Tensor, "*S"]:
    """The values themselves, whose gradient comes back with the factor -strength (DANN, Ganin et al., 2016)."""
    return (1 + strength) * values.detach() - strength * values


def domain_loss(
    source_logits: Float[Tensor, " m"],
    target_logits: Float[Tensor, " n"],
    source_weights: Float[Tensor, " m"] | None = None,
    target_weights: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, ""]:
    """Cross-entropy of telling source (1) from target (0), the mean of the two domains; samples may have weights."""
    source = -logsigmoid(source_logits) * (1 if source_weights is None else source_weights)
    target = -logsigmoid(-target_logits) * (1 if target_weights is None else target_weights)
    return (source.mean() + target.mean()) / 2
