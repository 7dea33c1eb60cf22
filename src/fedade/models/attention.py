"""Attention in the graph of a module's pass, written as one call or as two products with a softmax in between."""

import operator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn

from fedade.core.normalisation import current_pass
from fedade.kernels import HeadPlaces, Heads, attends, attention
from fedade.models.fused_steps import in_precision, run_node

PRODUCTS = (operator.matmul, torch.matmul, "matmul")
MULTIPLIED, DIVIDED = (operator.mul, torch.mul, "mul"), (operator.truediv, torch.div, "div")
SOFTMAXES = (F.softmax, torch.softmax, "softmax")
UNKNOWN_ATTENTION = "attention with a mask, among many tokens or of wide heads"


@dataclass(frozen=True)
class TokenAttention:
    """The nodes of an attention, and where its queries, keys and values lie in what layers have left."""

    nodes: tuple[fx.Node, ...]
    sources: tuple[fx.Node, ...]
    shapes: tuple[tuple[int, ...], ...]
    """Of a sample of the sources, as traced."""
    heads: Heads

    @property
    def output(self) -> fx.Node:
        return self.nodes[-1]

    @property
    def name(self) -> str:
        return part_of(self.output)

    def reads(self) -> list[fx.Node]:
        inputs = [read for node in self.nodes for read in node.all_input_nodes if read not in self.nodes]
        return list(dict.fromkeys((*self.sources, *inputs)))

    def run(self, module: nn.Module, values: dict[fx.Node, Any]) -> Tensor:
        precision = current_pass().precision
        sources = [values[node].to(torch.bfloat16) if precision == "bf16" else values[node] for node in self.sources]
        as_traced = all(tuple(one.shape[1:]) == shape for one, shape in zip(sources, self.shapes, strict=True))
        if as_traced and attends(self.heads, sources[0]):
            return attention(self.heads, sources, tf32=precision == "tf32")
        own = dict(values)
        with in_precision():
            for node in self.nodes:
                own[node] = run_node(node, module, own)
        result: Tensor = own[self.output]
        return result


def part_of(node: fx.Node) -> str:
    """The innermost module in whose pass a node is; its own name where that is the whole network."""
    around = list(node.meta.get("nn_module_stack", ()))
    return str(around[-1]) if around and around[-1] else node.name


def other_attention(node: fx.Node) -> bool:
    """Whether a node that runs as it is looks like a part of an attention."""
    multiplied = any(user.target in PRODUCTS for user in node.users)
    return node.target is F.scaled_dot_product_attention or (node.target in SOFTMAXES and multiplied)


def recognised_attentions(graph: fx.Graph, written: list[int]) -> list[TokenAttention]:
    """Those that the kernel could run; what is written in place, and when, decides whether they may wait."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    found = []
    for node in graph.nodes:
        parts = _one_call(node) or _products(node)
        one = None if parts is None else _located(*parts)
        if one is None or any(order[one.sources[0]] < place < order[node] for place in written):
            continue
        found.append(replace(one, nodes=_between(graph, one)))
    return found


Parts = tuple[tuple[fx.Node, ...], fx.Node, fx.Node, fx.Node, float, bool]
"""Nodes; queries, keys and values; the scale; and whether tokens of the keys are their last axis."""


def _one_call(node: fx.Node) -> Parts | None:
    if node.target is not F.scaled_dot_product_attention:
        return None
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    said: dict[str, Any] = dict(zip(names, node.args, strict=False)) | node.kwargs
    if any(said.get(name) for name in ("attn_mask", "dropout_p", "is_causal", "enable_gqa")):
        return None
    shape, scale = _shape(said["query"]), said.get("scale")
    factor = shape[-1] ** -0.5 if scale is None and shape else _number(scale)
    return None if factor is None else ((node,), said["query"], said["key"], said["value"], factor, False)


def _products(node: fx.Node) -> Parts | None:
    """(queries @ turned keys * scale).softmax(-1) @ values; the scale may come before, or not at all."""
    weights, values = _operands(node, PRODUCTS)
    if weights is None or values is None or weights.target not in SOFTMAXES or not _over_last(weights):
        return None
    scores, scale, scaling = _unscaled(weights.args[0])
    queries, keys = (None, None) if scores is None else _operands(scores, PRODUCTS)
    if scores is None or keys is None:
        return None
    queries, before, scaling_before = _unscaled(queries)
    inside = (*scaling_before, scores, *scaling, weights)
    if queries is None or any(len(one.users) != 1 for one in inside):
        return None
    return (*inside, node), queries, keys, values, scale * before, True


def _operands(node: Any, targets: tuple[Any, ...]) -> tuple[fx.Node | None, fx.Node | None]:
    if not isinstance(node, fx.Node) or node.target not in targets or len(node.args) != 2 or node.kwargs:
        return None, None
    first, second = node.args
    return (first, second) if isinstance(first, fx.Node) and isinstance(second, fx.Node) else (None, None)


def _over_last(node: fx.Node) -> bool:
    said: dict[str, Any] = dict(zip(("input", "dim"), node.args, strict=False)) | node.kwargs
    return said.get("dim") in (-1, len(_shape(node)) - 1) and said.get("dtype") in (None, torch.float32)


def _unscaled(node: Any) -> tuple[fx.Node | None, float, tuple[fx.Node, ...]]:
    """What is scaled by a number, that number, and the nodes that do it."""
    if not isinstance(node, fx.Node):
        return None, 1.0, ()
    if node.target not in (*MULTIPLIED, *DIVIDED) or len(node.args) != 2 or node.kwargs:
        return node, 1.0, ()
    factor, (inner, other) = _number(node.args[1]), node.args
    if factor is None and node.target in MULTIPLIED:
        factor, inner = _number(node.args[0]), other
    if not factor or not isinstance(inner, fx.Node):
        return node, 1.0, ()
    return inner, factor if node.target in MULTIPLIED else 1 / factor, (node,)


def _number(value: Any) -> float | None:
    found = value.meta.get("number") if isinstance(value, fx.Node) else value
    return float(found) if isinstance(found, int | float) else None


def _located(
    nodes: tuple[fx.Node, ...], queries: fx.Node, keys: fx.Node, values: fx.Node, scale: float, turned: bool
) -> TokenAttention | None:
    """Of queries, keys and values of the same shape: in what they are views of, if they are all of it."""
    kinds = [_shape(one) if isinstance(one, fx.Node) else () for one in (queries, keys, values)]
    if turned and len(kinds[1]) == 4:
        kinds[1] = (*kinds[1][:2], kinds[1][3], kinds[1][2])
    if len(kinds[0]) != 4 or len(set(kinds)) != 1:
        return None
    _, heads, tokens, channels = kinds[0]
    for origin in (_origin, lambda node: node):
        sources = list(dict.fromkeys(origin(node) for node in (queries, keys, values)))
        of_queries, of_keys, of_values = (
            _places(node, origin(node), sources, turned and node is keys) for node in (queries, keys, values)
        )
        if of_queries is None or of_keys is None or of_values is None:
            continue
        layout = Heads(of_queries, of_keys, of_values, heads, tokens, channels, scale)
        if layout.small(2) and layout.covers():
            return TokenAttention(nodes, tuple(sources), tuple(_shape(source)[1:] for source in sources), layout)
    return None


def _origin(node: fx.Node) -> fx.Node:
    """The first node whose memory this one reads."""
    before = node.all_input_nodes
    while before and before[0].meta.get("memory") == node.meta["memory"]:
        if before[0].meta.get("contiguous"):
            node = before[0]
        before = before[0].all_input_nodes
    return node


def _places(node: fx.Node, source: fx.Node, sources: list[fx.Node], turned: bool) -> HeadPlaces | None:
    size = prod(_shape(source)[1:])
    if node is source:  # which is laid out anew if need be
        *_, second, third = _shape(node)
        first, (sample, head, token, channel) = 0, (size, second * third, third, 1)
    else:
        first, (sample, head, token, channel) = node.meta["first"] - source.meta["first"], node.meta["steps"]
    if sample != size or _shape(node)[0] != _shape(source)[0]:
        return None
    token, channel = (channel, token) if turned else (token, channel)
    return HeadPlaces(sources.index(source), size, first, head, token, channel)


def _between(graph: fx.Graph, one: TokenAttention) -> tuple[fx.Node, ...]:
    """Its nodes, and those of which nobody else reads: views of the sources, and sizes."""
    inside = set(one.nodes)
    for node in reversed(graph.nodes):
        views = node.op in ("call_function", "call_method") and node not in one.sources
        if views and node.users and inside.issuperset(node.users):
            inside.add(node)
    return tuple(node for node in graph.nodes if node in inside)


def _shape(node: fx.Node) -> tuple[int, ...]:
    shape: tuple[int, ...] = node.meta.get("shape", ())
    return shape
