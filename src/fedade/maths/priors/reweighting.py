"""Correcting a classifier's outputs for a new class prior. Axes: *C any client axes, n samples, K classes."""

import torch
from jaxtyping import Float
from torch import Tensor


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
    return torch.where(total > 0, product / torch.where(total > 0, total, 1), probabilities)
