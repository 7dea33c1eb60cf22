"""A causal language model as body and head: the lower layers represent, the upper layers and a classifier decide.

The layers are called one by one. Texts are padded on the right and attention looks to the left, so that real tokens
never see padding and no mask is needed. Hidden states of padding are exactly zero between body and head, which is how
the head knows where a text ends.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Self

import torch
from torch import Tensor, nn

from fedade.core.precision import Precision
from fedade.core.split import Parameters
from fedade.core.tokens import PADDING

ENCODED_AT_ONCE = 64
"""Texts of one pass through the layers below the adapters."""
CAUSAL = "fedade-causal"
"""Under which models find `causal_attention` (`transformers.AttentionInterface`)."""


def freeze(module: nn.Module, scales_persist: bool) -> None:
    """Turn all parameters into buffers; scales of normalisation layers stay part of the state where told so."""
    for child in module.modules():
        scale = "norm" in type(child).__name__.lower()
        for name, parameter in list(child.named_parameters(recurse=False)):
            delattr(child, name)
            child.register_buffer(name, parameter.detach(), persistent=scale and scales_persist)


class DecoderLayers(nn.Module):
    """Decoder layers by their number in the model; most of their weights are a frozen base."""

    def __init__(self, layers: Mapping[int, nn.Module], rotary: nn.Module, width: int, described: str) -> None:
        super().__init__()
        self.width = width
        """Size of a hidden state."""
        self.layers = nn.ModuleDict({str(number): layer for number, layer in layers.items()})
        self.rotary = rotary
        self.described = described

    def based(self) -> Iterable[nn.Module]:
        """The modules that hold the base; rotary frequencies are constants, and stay exact."""
        return (self.layers,)

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

    def __repr__(self) -> str:
        """What models are stored under: which base and which adapters, not how libraries print them."""
        return f"{type(self).__name__}({self.described}, layers {', '.join(self.layers)})"

    def _through(self, layers: nn.ModuleDict, hidden: Tensor) -> Tensor:
        positions = torch.arange(hidden.shape[-2], device=hidden.device)[None]
        rotations = self.rotary(hidden, positions)
        for layer in layers.values():
            hidden = layer(hidden, attention_mask=None, position_ids=positions, position_embeddings=rotations)
        return hidden


class Body(DecoderLayers):
    """Token ids `[n, L]`, or what `encode` made of them, to hidden states `[n, L, d]` after the last shared layer."""

    def __init__(
        self,
        embedding: nn.Module,
        below: Mapping[int, nn.Module],
        layers: Mapping[int, nn.Module],
        rotary: nn.Module,
        width: int,
        described: str,
    ) -> None:
        super().__init__(layers, rotary, width, described)
        self.embedding = embedding
        self.below = nn.ModuleDict({str(number): layer for number, layer in below.items()})
        """Layers without adapters, the same for all clients and for ever."""

    def based(self) -> Iterable[nn.Module]:
        return (self.layers, self.embedding, self.below)

    def encode(self, tokens: Tensor) -> Tensor:
        """What lies below the lowest adapter, to be computed once per text; tokens themselves if that is nothing."""
        if not self.below:
            return tokens
        with torch.no_grad():
            return torch.cat([self._encoded(chunk) for chunk in torch.split(tokens, ENCODED_AT_ONCE)])

    def forward(self, inputs: Tensor) -> Tensor:
        encoded = inputs.is_floating_point()
        hidden = inputs.to(self.dtype) if encoded else self._encoded(inputs)
        present = (inputs != 0).any(-1) if encoded else inputs != PADDING
        return self._through(self.layers, hidden).masked_fill(~present[..., None], 0)

    def _encoded(self, tokens: Tensor) -> Tensor:
        hidden = self._through(self.below, self.embedding(tokens.clamp(min=0)))
        return hidden.masked_fill((tokens == PADDING)[..., None], 0)


class Head(DecoderLayers):
    """Hidden states `[n, L, d]` to logits `[n, K]` of the last real token."""

    def __init__(
        self, layers: Mapping[int, nn.Module], rotary: nn.Module, norm: nn.Module, classifier: nn.Linear, described: str
    ) -> None:
        super().__init__(layers, rotary, classifier.in_features, described)
        self.norm = norm
        self.classifier = classifier

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self.classifier.out_features} classes)"

    def forward(self, features: Tensor) -> Tensor:
        return self.classifier(self.last_hidden(features).to(self.classifier.weight.dtype))  # type: ignore[no-any-return]

    def last_hidden(self, features: Tensor) -> Tensor:
        """The model's final hidden state, `[n, d]`, of the last token that is not padding."""
        hidden = self._through(self.layers, features.to(self.dtype))
        last = (features != 0).any(-1).sum(-1, keepdim=True).clamp(min=1) - 1
        chosen = hidden.gather(-2, last[..., None].expand(-1, -1, hidden.shape[-1])).squeeze(-2)
        return self.norm(chosen)  # type: ignore[no-any-return]


def causal_attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: Tensor | None,
    scaling: float | None = None,
    **_others: Any,
) -> tuple[Tensor, None]:
    """softmax(q kᵀ · scale) v over this and earlier tokens: `[n, heads, L, d]` to `[n, L, heads, d]`. Several query
    heads may share one key and value head. The softmax is in float32 where the rest is bf16."""
    samples, heads, length, width = query.shape
    grouped = query.reshape(samples, key.shape[1], heads // key.shape[1], length, width)
    scores = grouped @ key.unsqueeze(2).transpose(-1, -2) * (width**-0.5 if scaling is None else scaling)
    later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
    exact = scores.float() if scores.dtype is torch.bfloat16 else scores
    weights = exact.masked_fill(later, -math.inf).softmax(-1).to(value.dtype)
    attended = (weights @ value.unsqueeze(2)).reshape(samples, heads, length, value.shape[-1])
    return attended.transpose(1, 2), None
