"""Correcting a classifier's outputs: by a temperature (Guo et al., 2017), and for a new class prior.

Axes: *C any leading axes, n samples, K classes.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.05, 20.0

_HALVINGS = 50


def reweight(
    probabilities: Float[Tensor, "*C n K"], prior: Float[Tensor, "*C K"], source_prior: Float[Tensor, " K"]
) -> Float[Tensor, "*C n K"]:
    """Posterior under label shift: proportional to p · q / μ0 (Saerens et al., 2002).

    A row whose product is 0 everywhere keeps its unweighted probabilities.

    >>> reweight(torch.tensor([[0.5, 0.5]]), prior=torch.tensor([0.8, 0.2]), source_prior=torch.tensor([0.5, 0.5]))
    tensor([[0.8000, 0.2000]])
    """
    ratio = prior / source_prior.clamp_min(torch.finfo(prior.dtype).eps)
    product = probabilities * ratio.unsqueeze(-2)
    total = product.sum(-1, keepdim=True)
    possible = total > 0
    return torch.where(possible, product / torch.where(possible, total, 1), probabilities)


def fit_temperature(logits: Float[Tensor, "n K"], labels: Int[Tensor, " n"]) -> Float[Tensor, ""]:
    """Temperature in [0.05, 20] that minimises the mean negative log-likelihood of the labels.

    The loss is convex in 1/T, so halving log T by the sign of its slope finds the minimum; where every
    temperature is equally good the answer is 1.

    >>> sure_and_partly_wrong = torch.tensor([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    >>> bool(fit_temperature(sure_and_partly_wrong, torch.tensor([0, 0, 1, 1])) > 1)
    True
    """
    # Shifted rows have the same likelihood, and constant ones become exactly 0.
    exact = logits.double() - logits.double().amax(-1, keepdim=True)
    low = torch.full((), math.log(LOWEST_TEMPERATURE), dtype=exact.dtype, device=exact.device)
    high = torch.full_like(low, math.log(HIGHEST_TEMPERATURE))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        too_cold = _slope(exact, labels, middle) > 0
        low, high = torch.where(too_cold, middle, low), torch.where(too_cold, high, middle)
    neutral = torch.zeros_like(low)
    best = torch.where(_slope(exact, labels, neutral) == 0, neutral, (low + high) / 2)
    return best.exp().to(logits.dtype)


def apply_temperature(logits: Float[Tensor, "*C K"], temperature: Float[Tensor, ""]) -> Float[Tensor, "*C K"]:
    """Logits divided by the temperature; the predicted classes stay the same."""
    return logits / temperature


def _slope(logits: Tensor, labels: Tensor, log_temperature: Tensor) -> Tensor:
    probabilities = torch.softmax(logits / log_temperature.exp(), -1)
    observed = logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return ((probabilities * logits).sum(-1) - observed).mean()
