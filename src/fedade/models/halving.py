"""Products in bf16 inside somebody's module."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

_PRODUCTS = frozenset({
    F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d, F.linear, F.bilinear,
    F.scaled_dot_product_attention, F.multi_head_attention_forward, torch.matmul, torch.mm, torch.bmm, torch.addmm,
    torch.baddbmm, torch.einsum, Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, Tensor.mm, Tensor.bmm,
    Tensor.addmm, Tensor.baddbmm,
})  # fmt: skip
_EXACT = frozenset({
    F.softmax, F.log_softmax, F.layer_norm, F.group_norm, F.batch_norm, F.instance_norm, F.normalize,
    torch.softmax, torch.log_softmax, torch.exp, torch.log, torch.pow, torch.rsqrt, torch.sum, torch.cumsum,
    torch.layer_norm, torch.group_norm, torch.batch_norm, torch.norm, torch.var, torch.std, torch.logsumexp,
    Tensor.softmax, Tensor.log_softmax, Tensor.exp, Tensor.log, Tensor.pow, Tensor.__pow__, Tensor.rsqrt, Tensor.sum,
    Tensor.cumsum, Tensor.norm, Tensor.var, Tensor.std, Tensor.logsumexp,
})  # fmt: skip


class ProductsInBf16(TorchFunctionMode):
    """While it is on, products round their operands to bf16, and what is sensitive to rounding runs in float32. It
    follows the lists of `torch.autocast`, which functions under `torch.vmap` pass by: they would run in float32, or
    refuse a float32 bias beside images in bf16."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _PRODUCTS:
            args, kwargs = _cast(args, torch.float32, torch.bfloat16), _cast(kwargs, torch.float32, torch.bfloat16)
        elif func in _EXACT:
            args, kwargs = _cast(args, torch.bfloat16, torch.float32), _cast(kwargs, torch.bfloat16, torch.float32)
        return func(*args, **(kwargs or {}))


def _cast(value: Any, before: torch.dtype, after: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(after) if value.dtype is before else value
    if isinstance(value, list | tuple):
        return [_cast(one, before, after) for one in value]
    if isinstance(value, dict):
        return {name: _cast(one, before, after) for name, one in value.items()}
    return value
