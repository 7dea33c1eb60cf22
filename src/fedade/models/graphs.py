"""A module's pass as a graph, without what changes nothing."""

import operator
from typing import Any

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, fx, nn

from fedade.models.batch_norm import BatchNorm


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(module, BatchNorm) or super().is_leaf_module(module, module_qualified_name)


class _Shapes(fx.Interpreter):
    """Notes the shape of every tensor; PyTorch's own also prints a traceback where a module fails."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor):
            n.meta["shape"] = tuple(result.shape)
        return result


def graph_of(module: nn.Module, inputs: Tensor) -> fx.Graph:
    graph = _Tracer().trace(module)
    owner = fx.GraphModule(module, graph)
    graph.eliminate_dead_code()
    _leave_out_identities(graph, module)
    _Shapes(owner).run(inputs)
    graph.owning_module = None  # a graph outlives the tensors that it was traced with
    return graph


def _leave_out_identities(graph: fx.Graph, module: nn.Module) -> None:
    """Nodes that give what they are given: padding by nothing would be a convolution, and others part layers."""
    for node in list(graph.nodes):
        if not _is_identity(node, module):
            continue
        (source,) = node.all_input_nodes
        # Where somebody writes to one of them in place, they may be two tensors.
        if not any(changes_its_input(user, module) for user in (*node.users, *source.users)):
            node.replace_all_uses_with(source)
            graph.erase_node(node)


def _is_identity(node: fx.Node, module: nn.Module) -> bool:
    if len(node.all_input_nodes) != 1:
        return False
    if node.op == "call_module":
        return type(module.get_submodule(str(node.target))) is nn.Identity
    if node.op != "call_function":
        return False
    if node.target is F.pad:
        padding = node.args[1] if len(node.args) > 1 else node.kwargs.get("pad")
        return isinstance(padding, list | tuple) and not any(padding)
    return node.target is operator.getitem and pixel_step(node) == 1


def changes_its_input(node: fx.Node, module: nn.Module) -> bool:
    """Whether a node that runs as it is writes to what it reads, so that nothing may be put off beyond it."""
    part = module.get_submodule(str(node.target)) if node.op == "call_module" else None
    named = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return bool(
        getattr(part, "inplace", False)
        or node.kwargs.get("inplace")
        or (node.op in ("call_method", "call_function") and (named.endswith("_") or named in ("iadd", "imul", "isub")))
        or node.target is operator.setitem
    )


def pixel_step(node: fx.Node) -> int | None:
    """s of x[:, :, ::s, ::s]."""
    if node.target is not operator.getitem or not isinstance(node.args[1], tuple) or len(node.args[1]) != 4:
        return None
    everything = slice(None, None, None)
    *first, rows, columns = node.args[1]
    if first != [everything, everything] or not isinstance(rows, slice) or rows != columns:
        return None
    return rows.step if rows.start in (None, 0) and rows.stop is None and isinstance(rows.step, int) else None
