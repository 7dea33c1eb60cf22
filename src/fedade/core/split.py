"""Named tensors: which of them clients share and which they keep, ψ and φ; and all of them as one vector, so that an
operation on all is one, not one per tensor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Real
from torch import Size, Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from fedade.core.errors import FedadeError

Parameters = Mapping[str, Tensor]
"""All tensors of a network by name, its normalisation statistics included."""


def below(tensors: Parameters, prefix: str) -> dict[str, Tensor]:
    """Those whose names begin with a prefix, under names without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class Split:
    """Parameters whose name starts with one of `personal` stay with the client; all others are shared.

    >>> Split(personal=("head.",)).is_shared("body.conv.weight")
    True
    """

    personal: tuple[str, ...] = ("head.",)

    def is_shared(self, name: str) -> bool:
        return not name.startswith(self.personal)

    def shared(self, parameters: Parameters) -> dict[str, Tensor]:
        return {name: value for name, value in parameters.items() if self.is_shared(name)}

    def personal_part(self, parameters: Parameters) -> dict[str, Tensor]:
        return {name: value for name, value in parameters.items() if not self.is_shared(name)}

    def check(self, parameters: Parameters) -> None:
        """Refuse a split that leaves one of its sides empty."""
        if not self.personal_part(parameters) or not self.shared(parameters):
            side = "personal" if not self.personal_part(parameters) else "shared"
            raise FedadeError(
                f"split: personal={list(self.personal)} leaves no {side} parameter; "
                f"names begin with {sorted({name.split('.')[0] + '.' for name in parameters})}"
            )


@dataclass(frozen=True)
class Layout:
    """Where each tensor lies in the vector."""

    shapes: Mapping[str, Size]

    @classmethod
    def of(cls, tensors: Parameters, leading: int = 0) -> "Layout":
        """The layout of these tensors, whose first axes (of clients, say) are no part of it."""
        return cls({name: value.shape[leading:] for name, value in tensors.items()})

    @classmethod
    def by_name(cls, tensors: Parameters, leading: int = 0) -> "Layout":
        """The layout in alphabetical order, for vectors that are kept: the order of a dictionary is easily lost."""
        return cls.of(dict(sorted(tensors.items())), leading)

    def join(self, tensors: Parameters, leading: int = 0) -> Tensor:
        """The tensors as one vector along the last axis; to be read only, since it may be where they lie already."""
        parts = [tensors[name] for name in self.shapes]
        lying = _lying_so(parts, leading)
        return torch.cat([part.reshape(*part.shape[:leading], -1) for part in parts], -1) if lying is None else lying

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors again, as views."""
        parts = torch.split(vector, [shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


def _lying_so(parts: Sequence[Tensor], leading: int) -> Tensor | None:
    """The memory of tensors that lie one behind the other, as parts of a vector do; None where they do not, and where
    a transformation of PyTorch keeps that to itself."""
    if any(is_functorch_wrapped_tensor(part) or part.requires_grad for part in parts):
        return None
    first, place = parts[0], parts[0].storage_offset()
    before, steps = first.shape[:leading], first.stride()[:leading]
    for part in parts:
        inner = part[(0,) * leading] if 0 not in before else part
        same = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() and part.dtype is first.dtype
        behind = part.storage_offset() == place and part.shape[:leading] == before and part.stride()[:leading] == steps
        if not (same and behind and inner.is_contiguous()):
            return None
        place += inner.numel()
    return first.as_strided((*before, place - first.storage_offset()), (*steps, 1))


def weighted_mean(values: Float[Tensor, " C *S"], weights: Real[Tensor, " C"]) -> Float[Tensor, "*S"]:
    """Mean over clients weighted by their sample counts, paper Sec. 3 (eq:aggregate). Weights are non-negative; where
    all are 0 every client counts the same."""
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
    layout = Layout.by_name(uplinks, leading=1)  # as steps leave them
    means = layout.named(weighted_mean(layout.join(uplinks, leading=1), weights))
    return {name: means[name] for name in uplinks}
