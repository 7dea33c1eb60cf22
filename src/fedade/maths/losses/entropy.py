"""Shannon entropy in nats. Axes: *C any leading axes, K classes."""

import torch
from jaxtyping import Float
from torch import Tensor


def entropy(probabilities: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """-Σ p log p with 0 log 0 = 0."""
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(-1)


def entropy_from_logits(logits: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """Entropy of softmax(logits), with finite values and gradients however large the logits are."""
    log_probabilities = torch.log_softmax(logits, -1)
    # A log-probability may overflow to -inf, and 0 · -inf would be NaN.
    finite = log_probabilities.clamp_min(torch.finfo(logits.dtype).min)
    return -(log_probabilities.exp() * finite).sum(-1)
