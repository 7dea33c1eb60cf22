"""Which parts of the graph of a module's pass the fused convolutions know, and which change nothing."""

import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn

from fedade.kernels import Layer
from fedade.models.batch_norm import BatchNorm

CHANNEL_MULTIPLE = 4
"""Kernels read channels in pieces of so many."""
MOST_GROUPS, MOST_REACH = 4, 7
"""A convolution with groups makes as many times the products when it is written without, and one that is dilated to
reach 7 pixels 5 times as many."""
SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
RELUS = (F.relu, torch.relu, torch.relu_, "relu", "relu_")
GELU_FORM = "none"
"""Exact; its approximation by a hyperbolic tangent runs as it is."""

Apart = tuple[Tensor, Tensor | None, BatchNorm | None]
"""Weights and bias of a convolution, and the normalisation after it."""


def leave_out_identities(graph: fx.Graph, module: nn.Module) -> None:
    """Nodes that give what they are given: padding by nothing would be a convolution, and others part layers."""
    for node in list(graph.nodes):
        if not _is_identity(node, module):
            continue
        (source,) = node.all_input_nodes
        # Where somebody writes to one of them in place, they may be two tensors.
        if not any(writes_input(user, module) for user in (*node.users, *source.users)):
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def _is_identity(node: fx.Node, module: nn.Module) -> bool:
    if len(node.all_input_nodes) != 1:
        return False
    if node.op == "call_module":
        part = module.get_submodule(str(node.target))
        return type(part) is nn.Identity or (type(part) is nn.Dropout and not part.training)
    if node.op != "call_function":
        return False
    if node.target is F.pad:
        padding = node.args[1] if len(node.args) > 1 else node.kwargs.get("pad")
        return isinstance(padding, list | tuple) and not any(padding)
    return node.target is operator.getitem and _pixel_step(node) == 1


def average_pixels_plainly(graph: fx.Graph, module: nn.Module) -> None:
    """Means of all pixels as such: as poolings `vmap` makes them client by client on a GPU, with a warning."""
    for node in list(graph.nodes):
        if _is_global_average(node, module):
            with graph.inserting_after(node):
                mean = graph.call_method("mean", (node.all_input_nodes[0], (-2, -1), True))
            node.replace_all_uses_with(mean)
            graph.erase_node(node)


def _is_global_average(node: fx.Node, module: nn.Module) -> bool:
    size: Any = None
    if node.op == "call_module":
        part = module.get_submodule(str(node.target))
        size = part.output_size if type(part) is nn.AdaptiveAvgPool2d else None
    elif node.target is F.adaptive_avg_pool2d:
        size = node.args[1] if len(node.args) > 1 else node.kwargs.get("output_size")
    return size in (1, (1, 1), [1, 1])


def writes_input(node: fx.Node, module: nn.Module) -> bool:
    """Whether a node that runs as it is writes to what it reads, so that nothing may be put off beyond it."""
    part = module.get_submodule(str(node.target)) if node.op == "call_module" else None
    named = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return bool(
        getattr(part, "inplace", False)
        or node.kwargs.get("inplace")
        or (node.op in ("call_method", "call_function") and (named.endswith("_") or named in ("iadd", "imul", "isub")))
        or node.target is operator.setitem
    )


class Weights(ABC):
    """Where a layer's weights are, by the names of the module's parts."""

    @abstractmethod
    def apart(self, module: nn.Module) -> Apart:
        """Weights, bias and normalisation one by one."""


@dataclass(frozen=True)
class RecognisedLayer:
    """relu(convolution(source) + residual), or a gelu, each part if there is one, and the nodes that it stands for."""

    nodes: tuple[fx.Node, ...]
    source: fx.Node
    weights: Weights
    stride: int
    residual: fx.Node | None = None
    relu: bool = False
    groups: int = 1
    dilation: int = 1
    gelu: bool = False
    of_tokens: bool = False
    """A product with the last axis of its source, whose channels it holds: a 1x1 convolution of another layout."""
    places: tuple[int, int] = (0, 0)
    """In the graph: where it is normalised, and where it ends."""

    @property
    def output(self) -> fx.Node:
        return self.nodes[-1]

    def reads(self) -> list[fx.Node]:
        return [self.source] if self.residual is None else [self.source, self.residual]

    def reading(self, source: int, residual: int | None) -> Layer:
        """The layer as kernels know it, of tensors with these numbers."""
        return Layer(source, self.stride, residual, self.relu, self.groups, self.dilation, self.gelu)


@dataclass(frozen=True)
class Convolved(Weights):
    """The weights of a convolution, or of a linear layer as those of a 1x1 convolution."""

    part: str
    norm: str | None = None

    def apart(self, module: nn.Module) -> Apart:
        part: Any = attrgetter(self.part)(module)  # `get_submodule` takes thrice as long
        norm: Any = None if self.norm is None else attrgetter(self.norm)(module)
        return part.weight[:, :, None, None] if isinstance(part, nn.Linear) else part.weight, part.bias, norm


@dataclass(frozen=True)
class Placed(Weights):
    """The weights of a 1x1 convolution that puts channels between so many of zeros: shortcuts without parameters."""

    channels: int
    before: int
    after: int

    @property
    def name(self) -> str:
        return f"placing_{self.channels}_{self.before}_{self.after}"

    def prepare(self, module: nn.Module) -> None:
        """Made once, and not in every pass; as a buffer they follow the module to its device, but are not stored."""
        device = next(module.parameters()).device
        weight = F.pad(torch.eye(self.channels, device=device), (0, 0, self.before, self.after))
        module.register_buffer(self.name, weight[:, :, None, None], persistent=False)

    def apart(self, module: nn.Module) -> Apart:
        return getattr(module, self.name), None, None


def recognised_layers(module: nn.Module, graph: fx.Graph) -> list[RecognisedLayer]:
    parts, order = dict(module.named_modules()), {node: place for place, node in enumerate(graph.nodes)}
    written = [place for node, place in order.items() if writes_input(node, module)]
    layers, taken = [], set[fx.Node]()
    for node in graph.nodes:
        layer = _convolution(node, parts) or _placing(node) or _linear(node, parts)
        if layer is not None:
            whole = _with_activation(_with_sum(layer, order, written, taken), parts)
            taken.update(whole.nodes)
            layers.append(replace(whole, places=(order[layer.output], order[whole.output])))
    return layers


def _convolution(node: fx.Node, parts: dict[str, nn.Module]) -> RecognisedLayer | None:
    part = parts.get(str(node.target)) if node.op == "call_module" else None
    if not isinstance(part, nn.Conv2d) or len(node.args) != 1 or unknown(part):
        return None
    nodes: tuple[fx.Node, ...] = (node,)
    follower = _only_user(node)
    if follower is not None and follower.op == "call_module" and isinstance(parts[str(follower.target)], BatchNorm):
        nodes = node, follower
    weights, (source,) = Convolved(*(str(one.target) for one in nodes)), node.all_input_nodes
    return RecognisedLayer(nodes, source, weights, part.stride[0], groups=part.groups, dilation=part.dilation[0])


def _linear(node: fx.Node, parts: dict[str, nn.Module]) -> RecognisedLayer | None:
    """A product of tokens; one of single vectors is too small to gain anything."""
    part = parts.get(str(node.target)) if node.op == "call_module" else None
    if not isinstance(part, nn.Linear) or len(node.args) != 1 or type(part).forward is not nn.Linear.forward:
        return None
    sizes = part.in_features, part.out_features
    if any(size % CHANNEL_MULTIPLE for size in sizes) or len(_shape(node.all_input_nodes[0])) < 3:
        return None
    return RecognisedLayer((node,), node.all_input_nodes[0], Convolved(str(node.target)), 1, of_tokens=True)


def is_token_norm(node: fx.Node, module: nn.Module) -> bool:
    """Whether a node is a layer normalisation of the last axis with weights of its own."""
    part = module.get_submodule(str(node.target)) if node.op == "call_module" and len(node.args) == 1 else None
    return (
        isinstance(part, nn.LayerNorm)
        and type(part).forward is nn.LayerNorm.forward
        and len(part.normalized_shape) == 1
        and part.weight is not None
        and part.bias is not None
    )


def unknown(part: nn.Conv2d) -> str:
    """Why a convolution cannot be fused; nothing if it can. Known are square windows of odd size, padded so that they
    keep the size up to the stride. Groups and dilation are written as zeros between weights, so that there may be but
    few of them."""
    size, dilation = part.kernel_size[0], part.dilation[0]
    reach = dilation * (size - 1) + 1
    same = part.padding == "same" and part.stride == (1, 1)
    reasons = {
        "a convolution of its own kind": type(part).forward is not nn.Conv2d.forward,
        "its window is not square": part.kernel_size != (size, size) or part.dilation != (dilation, dilation),
        "its window has an even size": size % 2 == 0,
        "its padding does not keep the size": not same and part.padding != (reach // 2, reach // 2),
        "rows and columns have another stride": part.stride[0] != part.stride[1],
        f"dilated to {reach} pixels": dilation > 1 and reach > MOST_REACH,
        f"{part.groups} groups": part.groups > MOST_GROUPS,
        "padded with other values than zeros": part.padding_mode != "zeros",
        f"{part.out_channels} channels, no multiple of {CHANNEL_MULTIPLE}": part.out_channels % CHANNEL_MULTIPLE > 0,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _placing(node: fx.Node) -> RecognisedLayer | None:
    """Every s-th pixel, between channels of zeros: the shortcut A of He et al. (2016)."""
    if node.op != "call_function" or node.target is not F.pad or len(node.all_input_nodes) != 1:
        return None
    taken, shape = node.all_input_nodes[0], _shape(node)
    said = dict(zip(("input", "pad", "mode", "value"), node.args, strict=False)) | node.kwargs
    padding = said.get("pad")
    if not isinstance(padding, list | tuple) or len(padding) != 6 or any(padding[:4]):
        return None
    if said.get("mode", "constant") != "constant" or said.get("value"):
        return None
    step = _pixel_step(taken)
    if step is None or len(_shape(taken)) != 4 or shape[1] % CHANNEL_MULTIPLE or _only_user(taken) is None:
        return None
    weights = Placed(_shape(taken)[1], int(padding[4]), int(padding[5]))  # type: ignore[arg-type]
    return RecognisedLayer((taken, node), taken.all_input_nodes[0], weights, step)


def _with_sum(
    layer: RecognisedLayer, order: dict[fx.Node, int], written: list[int], taken: set[fx.Node]
) -> RecognisedLayer:
    """With what is added to it. Of two layers that are added the earlier one carries the sum and waits for the other,
    unless something is written to in place meanwhile, which it may have to read before."""
    added = _only_user(layer.output)
    if added is None or added in taken or added.target not in SUMS or len(added.args) != 2 or added.kwargs:
        return layer
    others = [node for node in added.args if node is not layer.output]
    if len(others) != 1 or not isinstance(others[0], fx.Node) or _shape(others[0]) != _shape(layer.output):
        return layer
    if any(order[layer.nodes[0]] < place < order[added] for place in written):
        return layer
    return replace(layer, nodes=(*layer.nodes, added), residual=others[0])


def _with_activation(layer: RecognisedLayer, parts: dict[str, nn.Module]) -> RecognisedLayer:
    """With the relu after it, or the gelu after a product of tokens."""
    follower = _only_user(layer.output)
    if follower is None or len(follower.all_input_nodes) != 1:
        return layer
    part = parts[str(follower.target)] if follower.op == "call_module" else None
    if follower.target in RELUS or isinstance(part, nn.ReLU):
        return replace(layer, nodes=(*layer.nodes, follower), relu=True)
    form = part.approximate if isinstance(part, nn.GELU) else follower.kwargs.get("approximate", GELU_FORM)
    a_gelu = isinstance(part, nn.GELU) or follower.target is F.gelu
    if a_gelu and form == GELU_FORM and layer.of_tokens:
        return replace(layer, nodes=(*layer.nodes, follower), gelu=True)
    return layer


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _shape(node: fx.Node) -> tuple[int, ...]:
    shape: tuple[int, ...] = node.meta.get("shape", ())
    return shape


def _pixel_step(node: fx.Node) -> int | None:
    """s of x[:, :, ::s, ::s]."""
    if node.target is not operator.getitem or not isinstance(node.args[1], tuple) or len(node.args[1]) != 4:
        return None
    everything = slice(None, None, None)
    *first, rows, columns = node.args[1]
    if first != [everything, everything] or not isinstance(rows, slice) or rows != columns:
        return None
    return rows.step if rows.start in (None, 0) and rows.stop is None and isinstance(rows.step, int) else None
