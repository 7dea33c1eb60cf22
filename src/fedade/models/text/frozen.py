"""A frozen base that many clients use and none holds.

Base weights are buffers that are not persistent: no state, checkpoint or uplink contains them, and copies of a module
share them. The scales of normalisation layers are persistent buffers: part of a model's parameters, which gradient
steps leave alone unless a method asks for them by name.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, Self

import torch
from torch import Tensor, nn

from fedade.core.precision import Precision
from fedade.core.split import Parameters


def freeze(module: nn.Module, scales_persist: bool) -> None:
    """Turn all parameters into buffers; scales of normalisation layers stay part of the state where told so."""
    for child in module.modules():
        scale = "norm" in type(child).__name__.lower()
        for name, parameter in list(child.named_parameters(recurse=False)):
            delattr(child, name)
            child.register_buffer(name, parameter.detach(), persistent=scale and scales_persist)


class FrozenBase(nn.Module):
    """A module part of whose weights are a frozen base, in the precision that it computes in."""

    def based(self) -> Iterable[nn.Module]:
        """The modules that hold the base."""
        raise NotImplementedError

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the base, in which all but the classifier is computed."""
        return next(value.dtype for _, _, value in self._base() if value.is_floating_point())

    def in_precision(self, precision: Precision) -> Self:
        cast = deepcopy(self)
        for module, name, value in list(cast._base()):
            module._buffers[name] = value.to(torch.bfloat16 if precision == "bf16" else torch.float32)
        return cast

    def rounded(self, parameters: Parameters) -> dict[str, Tensor]:
        return {
            name: value if name.startswith("classifier.") else value.to(self.dtype)
            for name, value in parameters.items()
        }

    def _base(self) -> Iterator[tuple[nn.Module, str, Tensor]]:
        for part in self.based():
            for module in part.modules():
                for name in sorted(module._non_persistent_buffers_set):
                    value = module._buffers[name]
                    if value is not None:
                        yield module, name, value

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy of everything but the base."""
        memo |= {id(value): value for _, _, value in self._base()}
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(deepcopy(self.__dict__, memo))
        return copied
