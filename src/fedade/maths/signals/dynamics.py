"""Distribution shift dynamics signal, paper Sec. 4.2, and the learning rate that follows from it, Sec. 4.1.

Axes: *C any client axes, n samples, K classes, d features.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

SHORTEST = 1e-3
"""Length below which a feature is not stretched to 1: its slope would be as large as the inverse."""


def mean_prediction(probabilities: Float[Tensor, "*C n K"]) -> Float[Tensor, "*C K"]:
    """Mean softmax vector q of a batch, paper Sec. 4.2 (eq:batch_q)."""
    return probabilities.mean(-2)


def prediction_histogram(probabilities: Float[Tensor, "*C n K"]) -> Float[Tensor, "*C K"]:
    """Share of samples predicted as each class: the released code's summary in place of eq:batch_q."""
    classes = torch.arange(probabilities.shape[-1], device=probabilities.device)
    predicted = probabilities.argmax(-1, keepdim=True) == classes
    return predicted.to(probabilities.dtype).mean(-2)


def mean_feature(features: Float[Tensor, "*C n d"]) -> Float[Tensor, "*C d"]:
    """Mean of ℓ2-normalised features, z of paper Sec. 4.2 (eq:z_mean); a zero feature counts as 0."""
    return _direction(features).mean(-2)


def mean_feature_normalised_once(features: Float[Tensor, "*C n d"]) -> Float[Tensor, "*C d"]:
    """Direction of the mean raw feature: the released code's summary in place of eq:z_mean."""
    return _direction(features.mean(-2))


def cosine_distance(first: Float[Tensor, "*C d"], second: Float[Tensor, "*C d"]) -> Float[Tensor, "*C"]:
    """1 - cos in [0, 2]: exactly 0 for equal inputs; 0 for two zero vectors and 1 if only one is zero."""
    both = torch.stack((first, second))
    # Half the squared chord of the two directions equals 1 - cos without its cancellation near 0.
    chord = torch.sub(*_direction(both))
    distance = (chord.square().sum(-1) / 2).clamp(0, 2)
    one_is_zero = torch.logical_xor(*(both == 0).all(-1))
    return torch.where(one_is_zero, torch.ones_like(distance), distance)


def uncertainty_dynamics(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """Uncertainty dynamics S_unc in [0, 1]: cosine distance of two summaries, paper Sec. 4.2 (eq:S_lab)."""
    return cosine_distance(previous, current).clamp(0, 1)


def representation_dynamics(previous: Float[Tensor, "*C d"], current: Float[Tensor, "*C d"]) -> Float[Tensor, "*C"]:
    """Representation dynamics S_rep in [0, 1]: half the cosine distance, paper Sec. 4.2 (eq:S_rep)."""
    return cosine_distance(previous, current) / 2


def combined_dynamics(
    s_unc: Float[Tensor, "*C"], s_rep: Float[Tensor, "*C"], use_unc: bool = True, use_rep: bool = True
) -> Float[Tensor, "*C"]:
    """Combined signal S, the mean of both, paper Sec. 4.2 (eq:S_combined). With one switched off the other counts
    alone; with both off the signal is 0."""
    if use_unc and use_rep:
        return (s_unc + s_rep) / 2
    if use_unc:
        return s_unc
    if use_rep:
        return s_rep
    return torch.zeros_like(s_unc)


def _direction(vectors: Tensor) -> Tensor:
    # Dividing by the largest entry first keeps the squares from overflowing or vanishing; it cancels in the
    # quotient, hence no gradient through it.
    peak = vectors.abs().amax(-1, keepdim=True).detach()
    scaled = vectors / _ones_for_zeros(peak)
    return scaled / _ones_for_zeros(torch.linalg.vector_norm(scaled, dim=-1, keepdim=True))


def _ones_for_zeros(divisors: Tensor) -> Tensor:
    return divisors + (divisors == 0)


def directions(features: Float[Tensor, "*C d"]) -> Float[Tensor, "*C d"]:
    """h / ‖h‖, with bounded gradients for features that vanish."""
    return normalize(features, dim=-1, eps=SHORTEST)


def adaptive_rate(signal: Float[Tensor, "*C"], low: float | Tensor, high: float | Tensor) -> Float[Tensor, "*C"]:
    """Learning rate η = η_min + (η_max - η_min) S within [η_min, η_max], paper Sec. 4.1 (eq:eta_map). Bounds that are
    tensors are taken as they are: what runs on a device is not asked for its values."""
    if not isinstance(low, Tensor) and not isinstance(high, Tensor):
        if low < 0:
            raise ValueError(f"rate bounds: low {low:g} is negative; give 0 or more")
        if low > high:
            raise ValueError(f"rate bounds: low {low:g} > high {high:g}; swap them?")
        if low == high:
            return torch.full_like(signal, low)
        return (low + (high - low) * signal).clamp(low, high)
    return torch.minimum(torch.maximum(low + (high - low) * signal, torch.as_tensor(low)), torch.as_tensor(high))
