"""What a traced pass consists of: chains of fused layers, norms of tokens, and nodes that run as they are, whose
products are in the precision of the pass, too."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from fedade.core.normalisation import BySampleMoments, Frozen, current_pass
from fedade.kernels import (
    Affine,
    Layer,
    convolved,
    convolved_and_measured,
    fused_layers,
    layer_norm,
    ready_weights,
    runs_fused,
)
from fedade.models.batch_norm import applied
from fedade.models.recognising import RecognisedLayer

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


@dataclass(frozen=True)
class FusedChain:
    """Layers that are run by one call, the last one for its output."""

    layers: tuple[RecognisedLayer, ...]

    @property
    def output(self) -> fx.Node:
        return self.layers[-1].output

    @property
    def of_tokens(self) -> bool:
        return self.layers[0].of_tokens

    def reads(self) -> list[fx.Node]:
        return self._numbered[0]

    @cached_property
    def _numbered(self) -> tuple[list[fx.Node], list[Layer]]:
        """What the layers read from outside, and the layers as kernels know them, of tensors with numbers."""
        inside = {layer.output: place for place, layer in enumerate(self.layers)}
        given = list(dict.fromkeys(node for layer in self.layers for node in layer.reads() if node not in inside))
        number: dict[fx.Node | None, int] = {node: place for place, node in enumerate((*given, *inside))}
        return given, [layer.reading(number[layer.source], number.get(layer.residual)) for layer in self.layers]

    @cached_property
    def _in_order(self) -> list[tuple[RecognisedLayer, bool]]:
        """Where layers are normalised and where they end, in the order of the graph."""
        places = [(when, ends, layer) for layer in self.layers for ends, when in enumerate(layer.places)]
        return [(layer, bool(ends)) for _, ends, layer in sorted(places, key=lambda place: place[:2])]

    def run(
        self, module: nn.Module, values: dict[fx.Node, Any], packed: Mapping[fx.Node, Tensor] | None = None
    ) -> Tensor:
        """`packed` are the weights of products of tokens in the precision of the pass, by the layers' outputs."""
        asked = set[fx.Node]() if self.of_tokens else self._asked(module, runs_fused(values[self.reads()[0]]))
        if asked:
            return self._one_by_one(module, {node: values[node] for node in self.reads()}, asked)
        return self._at_once(module, values, packed)

    def _asked(self, module: nn.Module, on_gpu: bool) -> set[fx.Node]:
        """Outputs of the layers whose inputs the strategy of the pass is to be shown. On a CPU all of them
        are: compiled convolutions take no chain that begins with several tensors, as one may after those asked for."""
        strategy = current_pass().normalisation
        if isinstance(strategy, Frozen):
            return set()
        if not (on_gpu and isinstance(strategy, BySampleMoments)):
            return {layer.output for layer in self.layers}
        norms = {layer.output: layer.weights.apart(module)[2] for layer in self.layers}
        return {output for output, norm in norms.items() if norm is not None and strategy.looks_at(norm.layer)}

    @cached_property
    def _ends(self) -> dict[int, "FusedChain"]:
        return {}

    def _after(self, number: int) -> "FusedChain":
        """The layers after so many of them."""
        return self._ends.setdefault(number, FusedChain(self.layers[number:]))

    def _at_once(
        self, module: nn.Module, values: Mapping[fx.Node, Any], packed: Mapping[fx.Node, Tensor] | None = None
    ) -> Tensor:
        precision, (given, layers) = current_pass().precision, self._numbered
        images = [values[node].to(torch.bfloat16) if precision == "bf16" else values[node] for node in given]
        shape = images[0].shape
        if self.of_tokens and not runs_fused(images[0]):
            return self._products(module, {node: values[node] for node in given})
        if self.of_tokens:  # as images of one row
            images = [one.reshape(len(one), 1, -1, one.shape[-1]).permute(0, 3, 1, 2) for one in images]
        weights, biases, norms = zip(*(layer.weights.apart(module) for layer in self.layers), strict=True)
        affines = [None if norm is None else norm.deployed() for norm in norms]
        ready = [packed[layer.output] for layer in self.layers] if self.of_tokens and packed else []
        ready = ready if all(weight.dtype is images[0].dtype for weight in ready) else []
        result = fused_layers(layers, images, weights, biases, precision == "tf32", affines, ready)
        return result.permute(0, 2, 3, 1).reshape(*shape[:-1], -1) if self.of_tokens else result

    def _products(self, module: nn.Module, values: dict[fx.Node, Tensor]) -> Tensor:
        """The same by plain products of matrices."""
        for layer in self.layers:
            weight, bias, _ = layer.weights.apart(module)
            with in_precision():
                result = F.linear(values[layer.source], weight.flatten(1), bias)
            result = result if layer.residual is None else result + values[layer.residual]
            values[layer.output] = result.relu() if layer.relu else F.gelu(result) if layer.gelu else result
        return values[self.output]

    def _one_by_one(self, module: nn.Module, values: dict[fx.Node, Tensor], asked: set[fx.Node]) -> Tensor:
        """The same where statistics depend on what a layer is shown: they are asked for in the order of the graph. On a
        GPU the layers that nobody asks for are fused, and those after the others are run at once."""
        on_gpu = runs_fused(next(iter(values.values())))
        by_samples = on_gpu and isinstance(current_pass().normalisation, BySampleMoments)
        number = 1 + max(place for place, layer in enumerate(self.layers) if layer.output in asked)
        first = {layer.output for layer in self.layers[:number]}
        precision, uses = current_pass().precision, Counter(node for layer in self.layers for node in layer.reads())
        read_as = torch.bfloat16 if precision == "bf16" else next(iter(values.values())).dtype

        def read(node: fx.Node) -> Tensor:
            uses[node] -= 1
            value = values[node] if uses[node] else values.pop(node)
            return value.to(torch.bfloat16) if precision == "bf16" else value

        def convolution(
            layer: RecognisedLayer,
            weight: Tensor,
            bias: Tensor | None,
            affine: Affine | None = None,
            added: Tensor | None = None,
            relu: bool = False,
        ) -> Tensor:
            images, tf32 = [read(layer.source)], precision == "tf32"
            if bias is None and affine is None and added is None and not relu:
                return convolved(images[0], weight, layer.stride, tf32, layer.groups, layer.dilation)
            one = Layer(0, layer.stride, None if added is None else 1, relu, layer.groups, layer.dilation)
            images += [] if added is None else [added]
            return fused_layers([one], images, [weight], [bias], tf32, [affine])

        ready = self._ready(module, asked, read_as) if by_samples else {}
        begun: dict[fx.Node, tuple[Tensor, Affine]] = {}
        for layer, ends in self._in_order:
            if layer.output not in first:
                continue
            added = None if layer.residual is None or not ends else read(layer.residual)
            if layer.output in begun:
                values[layer.output] = applied(*begun.pop(layer.output), added, layer.relu)
                continue
            weight, bias, norm = layer.weights.apart(module)
            if norm is not None and layer.output in asked and by_samples:
                alone = Layer(0, layer.stride, None, False, layer.groups, layer.dilation)
                image, rounded = read(layer.source), ready[layer.output]
                found = convolved_and_measured(alone, image, weight, bias, precision == "tf32", rounded)
                begun[layer.output] = norm.begun(*found)
            elif norm is not None and layer.output in asked:
                begun[layer.output] = norm.begun(convolution(layer, weight, bias))
            elif ends:
                affine = None if norm is None else norm.deployed()
                values[layer.output] = convolution(layer, weight, bias, affine, added, layer.relu)
        return values[self.output] if number == len(self.layers) else self._after(number)._at_once(module, values)

    def _ready(self, module: nn.Module, asked: set[fx.Node], dtype: torch.dtype) -> dict[fx.Node, Tensor | None]:
        """Weights of the layers that are asked for as their products read them, made for all of them at once."""
        layers = [layer for layer in self.layers if layer.output in asked]
        weights = [layer.weights.apart(module)[0] for layer in layers]
        found = ready_weights([layer.reading(0, None) for layer in layers], weights, dtype)
        return {layer.output: weight for layer, weight in zip(layers, found, strict=True)}


@dataclass(frozen=True)
class TokenNorm:
    """A layer normalisation; what only products read is given in their precision."""

    output: fx.Node
    products_read: bool

    def reads(self) -> list[fx.Node]:
        return self.output.all_input_nodes

    def run(self, module: nn.Module, values: dict[fx.Node, Any]) -> Tensor:
        norm: Any = module.get_submodule(str(self.output.target))
        (source,) = self.reads()
        tokens = values[source]
        if not runs_fused(tokens):
            with in_precision():
                return norm(tokens)  # type: ignore[no-any-return]
        # Sums keep the layout of what they add to: what the patches left transposed would be turned before every norm.
        tokens = tokens.contiguous()
        low = self.products_read and current_pass().precision == "bf16"
        exact = torch.float64 if tokens.dtype is torch.float64 else torch.float32
        dtype = torch.bfloat16 if low else exact
        normal, values[source] = layer_norm(tokens, norm.weight, norm.bias, norm.eps, dtype)
        return normal


def run_node(node: fx.Node, module: nn.Module, values: dict[fx.Node, Any]) -> Any:
    """As `fx.Interpreter` does, which looks through the whole module before it begins."""
    arguments: Any = fx.node.map_arg(node.args, values.__getitem__)
    keywords: Any = fx.node.map_arg(node.kwargs, values.__getitem__)
    if callable(node.target):
        return node.target(*arguments, **keywords)
    if node.op == "call_method":
        return getattr(arguments[0], node.target)(*arguments[1:], **keywords)
    found = attrgetter(node.target)(module)
    return found(*arguments, **keywords) if node.op == "call_module" else found


def in_precision() -> AbstractContextManager[object]:
    """Products of the layers that run as they are have the precision of the pass, as fused ones do."""
    return ProductsInBf16() if current_pass().precision == "bf16" else nullcontext()


class ProductsInBf16(TorchFunctionMode):
    """While it is on, products round their operands to bf16, and what is sensitive to rounding runs in float32. It
    follows the lists of `torch.autocast`, which functions under `torch.vmap` pass by: they would run in float32, or
    refuse a float32 bias beside images in bf16."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _PRODUCTS:
            args, kwargs = _cast((args, kwargs), torch.float32, torch.bfloat16)
        elif func in _EXACT:
            args, kwargs = _cast((args, kwargs), torch.bfloat16, torch.float32)
        return func(*args, **(kwargs or {}))


def _cast(value: Any, before: torch.dtype, after: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(after) if value.dtype is before else value
    if isinstance(value, list | tuple):
        return [_cast(one, before, after) for one in value]
    if isinstance(value, dict):
        return {name: _cast(one, before, after) for name, one in value.items()}
    return value
