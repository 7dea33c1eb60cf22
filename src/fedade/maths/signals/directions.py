"""Features without their length. Axes: *C any leading axes, d features."""

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

SHORTEST = 1e-3
"""Length below which a feature is not stretched to 1: its slope would be as large as the inverse."""


def directions(features: Float[Tensor, "*C d"]) -> Float[Tensor, "*C d"]:
    """h / ‖h‖, with bounded gradients for features that vanish."""
    return normalize(features, dim=-1, eps=SHORTEST)
