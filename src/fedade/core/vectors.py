"""Named tensors as one vector: an operation on all of them is then one, not one per tensor."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Real
from torch import Size, Tensor

from fedade.core.split import Parameters


@dataclass(frozen=True)
class Layout:
    """Where each tensor lies in the vector."""

    shapes: Mapping[str, Size]

    @classmethod
    def of(cls, tensors: Parameters, leading: int = 0) -> "Layout":
        """The layout of these tensors, whose first axes (of clients, say) are no part of it."""
        return cls({name: value.shape[leading:] for name, value in tensors.items()})

    @classmethod
    def by_name(cls, tensors: Parameters) -> "Layout":
        """The layout in alphabetical order, for vectors that are kept: the order of a dictionary is easily lost."""
        return cls.of(dict(sorted(tensors.items())))

    def join(self, tensors: Parameters, leading: int = 0) -> Tensor:
        """The tensors as one vector along the last axis."""
        return torch.cat([tensors[name].reshape(*tensors[name].shape[:leading], -1) for name in self.shapes], -1)

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors again, as views."""
        parts = torch.split(vector, [shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


def weighted_mean(values: Float[Tensor, " C *S"], weights: Real[Tensor, " C"]) -> Float[Tensor, "*S"]:
    """Mean over clients weighted by their sample counts, paper Sec. 3 (eq:aggregate).

    Weights are non-negative; where all are 0 every client counts the same.
    """
    weights = weights.to(values.dtype)
    total = weights.sum(0)
    equal_shares = torch.full_like(weights, 1 / weights.shape[0])
    shares = torch.where(total > 0, weights / torch.where(total > 0, total, 1), equal_shares)
    # Multiplied and summed, not contracted: a matrix product may run in reduced precision on a GPU.
    return (shares.reshape(-1, *(1,) * (values.ndim - 1)) * values).sum(0)


def average(uplinks: Parameters, weights: Tensor) -> dict[str, Tensor]:
    """Σ N_c θ_c / Σ N_c of every tensor (McMahan et al., 2017; eq:aggregate); nothing, where nothing was sent."""
    if not uplinks:
        return {}
    layout = Layout.of(uplinks, leading=1)
    return layout.named(weighted_mean(layout.join(uplinks, leading=1), weights))
