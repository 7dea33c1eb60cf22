"""Causal attention in plain arithmetic, which `vmap` batches over clients.

Under `vmap` PyTorch's fused attention falls back to one client after the other. Texts here are so short that attention
is a few hundredths of the work.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

NAME = "fedade-causal"
"""Under which models find it (`transformers.AttentionInterface`)."""


def causal_attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    scaling: float | None = None,
    **_others: Any,
) -> tuple[Tensor, None]:
    """softmax(q kᵀ · scale) v over this and earlier tokens: `[n, heads, L, d]` to `[n, L, heads, d]`.

    Several query heads may share one key and value head. The softmax is in float32 where the rest is bf16.
    """
    samples, heads, length, width = query.shape
    grouped = query.reshape(samples, key.shape[1], heads // key.shape[1], length, width)
    scores = grouped @ key.unsqueeze(2).transpose(-1, -2) * (width**-0.5 if scaling is None else scaling)
    later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    exact = scores.float() if scores.dtype is torch.bfloat16 else scores
    weights = exact.masked_fill(later, -math.inf).softmax(-1).to(value.dtype)
    attended = (weights @ value.unsqueeze(2)).reshape(samples, heads, length, value.shape[-1])
    return attended.transpose(1, 2), None
