"""Any network, by the fused convolutions where these know its layers.

`torch.fx` writes a module's pass down as a graph. Where normalisation has fixed statistics, a convolution, the
normalisation after it, a sum and a relu are one `Layer`, and layers that follow one another are one call. What is not
recognised runs as it is, in the same precision. Of the module nothing is changed but for constants that its plan reads:
a plan says how its parts run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from threading import Lock, get_ident
from typing import Any

import torch
from torch import Tensor, fx, nn

from fedade.core.normalisation import PassContext, making_pass
from fedade.kernels import runs_fused
from fedade.models.batch_norm import BatchNorm
from fedade.models.fused_steps import FusedChain, TokenNorm, in_precision
from fedade.models.image import GlobalAverage
from fedade.models.recognising import (
    Placed,
    RecognisedLayer,
    is_token_norm,
    leave_out_identities,
    recognised_layers,
    unknown,
    writes_input,
)

Step = fx.Node | FusedChain | TokenNorm
ROUNDING = 1e-3


@dataclass(frozen=True)
class TracedPass:
    """A module's pass as steps: nodes of its graph that run as they are, and chains that stand for several."""

    graph: fx.Graph
    steps: tuple[Step, ...]
    unused_after: dict[int, list[fx.Node]] = field(default_factory=dict)
    """By step, the nodes whose values nobody needs any more."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "TracedPass":
        return self  # it holds names and numbers, no tensors

    def run(self, module: nn.Module, inputs: Tensor) -> Any:
        values, given = dict[fx.Node, Any](), iter((inputs,))
        for place, step in enumerate(self.steps):
            if isinstance(step, FusedChain | TokenNorm):
                values[step.output] = step.run(module, values)
            elif step.op == "placeholder":
                values[step] = next(given, step.args[0] if step.args else None)
            else:
                arguments = fx.node.map_arg(step.args, values.__getitem__)
                keywords = fx.node.map_arg(step.kwargs, values.__getitem__)
                if step.op == "output":
                    return arguments[0]
                with in_precision():
                    values[step] = _run(step, module, arguments, keywords)
            for node in self.unused_after.get(place, ()):
                del values[node]
        raise AssertionError("a graph ends with its output")

    @property
    def convolves(self) -> bool:
        """Whether images are convolved by fused layers."""
        return any(isinstance(step, FusedChain) and not step.of_tokens for step in self.steps)

    def fused_layers(self) -> list[RecognisedLayer]:
        return [layer for step in self.steps if isinstance(step, FusedChain) for layer in step.layers]

    def fused_modules(self) -> list[str]:
        nodes = [node for layer in self.fused_layers() for node in layer.nodes]
        return [str(node.target) for node in nodes if node.op == "call_module"]


class TracedBody(nn.Sequential):
    """A first layer that standardises inputs, and the body of any network."""

    plan: TracedPass | None = None
    not_traced = ""
    """Why there is no plan."""

    def forward(self, inputs: Tensor) -> Tensor:
        first, body = self
        features: Tensor = forward_traced(self.plan, body, first(inputs))
        return features

    def trace(self, inputs: Tensor) -> None:
        first, body = self
        self.plan, self.not_traced = traced(body, first(inputs))


def traced(module: nn.Module, inputs: Tensor) -> tuple[TracedPass | None, str]:
    """The pass of a module over such inputs; or None, and why: it cannot be written down, or none of its layers is
    known. A trace holds for the way that one pass took. Where it does not give what the module gives, it is dropped."""
    with torch.no_grad(), making_pass(PassContext(native=False)):
        try:
            graph = graph_of(module, inputs)
            steps = tuple(_in_chains(graph, module))
            plan = TracedPass(graph, steps, _unused_after(steps))
            for layer in plan.fused_layers():
                if isinstance(layer.weights, Placed):
                    layer.weights.prepare(module)
            if not plan.fused_modules():
                return None, "no layer can be fused"
            if not rounds_to(plan.run(module, inputs), module(inputs)):
                return None, "the trace of its pass gives other values than the module"
        except Exception as error:  # noqa: BLE001 - whatever a stranger's code does with a stand-in for a tensor
            return None, f"its pass cannot be traced: {type(error).__name__}: {error}"
    return plan, ""


def forward_traced(plan: TracedPass | None, module: nn.Module, inputs: Tensor) -> Any:
    """A pass of the module in the precision in force: by the plan, if there is one, unless it is trained. Products of
    tokens gain on a GPU only."""
    if plan is not None and not module.training and (plan.convolves or runs_fused(inputs)):
        return plan.run(module, inputs)
    with in_precision():
        return module(inputs)


def fused_and_other_layers(body: nn.Module) -> tuple[list[str], list[str]]:
    """Names of the convolutions and matrix products of a body that run fused, and of those that run as they are."""
    plan = getattr(body, "plan", None)
    fused = {*plan.fused_modules()} if isinstance(plan, TracedPass) else set()
    inner = body[1] if isinstance(body, TracedBody) else body
    names = [name for name, part in inner.named_modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    return [name for name in names if name in fused], [name for name in names if name not in fused]


def why_as_it_is(body: nn.Module, name: str) -> str:
    """Why a layer of a body is not fused."""
    part = (body[1] if isinstance(body, TracedBody) else body).get_submodule(name)
    return (unknown(part) or "not traced") if isinstance(part, nn.Conv2d) else "a product of matrices"


class _Tracer(fx.Tracer):
    """While it traces, PyTorch sends it what any module of the process is asked; other threads get answers."""

    one_at_a_time = Lock()

    def __init__(self) -> None:
        super().__init__()
        self.thread = get_ident()

    def is_leaf_module(self, module: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(module, BatchNorm | GlobalAverage) or super().is_leaf_module(module, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        ours = get_ident() == self.thread
        return super().call_module(m, forward, args, kwargs) if ours else forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        ours = get_ident() == self.thread
        return super().getattr(attr, attr_val, parameter_proxy_cache) if ours else attr_val


class _Shapes(fx.Interpreter):
    """Notes the shape of every tensor; PyTorch's own also prints a traceback where a module fails."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if isinstance(result, Tensor):
            n.meta["shape"] = tuple(result.shape)
        return result


def graph_of(module: nn.Module, inputs: Tensor) -> fx.Graph:
    with _Tracer.one_at_a_time:
        graph = _Tracer().trace(module)
    owner = fx.GraphModule(module, graph)
    graph.eliminate_dead_code()
    leave_out_identities(graph, module)
    _Shapes(owner).run(inputs)
    graph.owning_module = None  # a graph outlives the tensors that it was traced with
    return graph


def rounds_to(ours: Any, theirs: Any) -> bool:
    """Whether two outputs differ by no more than rounding, in units of the largest entry."""
    if not isinstance(ours, Tensor) or not isinstance(theirs, Tensor) or ours.shape != theirs.shape:
        return False
    return torch.allclose(ours, theirs, 0, ROUNDING * float(theirs.abs().max()))


def _run(node: fx.Node, module: nn.Module, arguments: Any, keywords: Any) -> Any:
    """As `fx.Interpreter` does, which looks through the whole module before it begins."""
    if callable(node.target):
        return node.target(*arguments, **keywords)
    if node.op == "call_method":
        return getattr(arguments[0], node.target)(*arguments[1:], **keywords)
    found = attrgetter(node.target)(module)
    return found(*arguments, **keywords) if node.op == "call_module" else found


def _in_chains(graph: fx.Graph, module: nn.Module) -> list[Step]:
    """The graph's nodes in their order; layers that follow one another are put off until their result is needed."""
    by_output = {layer.output: layer for layer in recognised_layers(module, graph)}
    multiplied = {node for layer in by_output.values() if layer.of_tokens for node in layer.nodes[:1]}
    inside = {node for layer in by_output.values() for node in layer.nodes}
    steps: list[Step] = []
    waiting: list[RecognisedLayer] = []
    for node in graph.nodes:
        if node in by_output:
            if waiting and waiting[-1].of_tokens != by_output[node].of_tokens:
                steps += _cut(waiting)
                waiting = []
            waiting.append(by_output[node])
        elif node not in inside:
            outputs = {layer.output for layer in waiting}
            if node.op == "output" or outputs.intersection(node.all_input_nodes) or writes_input(node, module):
                steps += _cut(waiting)
                waiting = []
            normed = is_token_norm(node, module)
            steps.append(TokenNorm(node, multiplied.issuperset(node.users)) if normed else node)
    return steps


def _cut(layers: list[RecognisedLayer]) -> list[FusedChain]:
    """Chains of which nothing but the last output is read from outside, as few as can be."""
    place = {layer.output: index for index, layer in enumerate(layers)}
    inside = {node for layer in layers for node in layer.nodes}
    ends = {place[layer.output] for layer in layers if not inside.issuperset(layer.output.users)}
    while True:
        chain_of = [sum(end < index for end in ends) for index in range(len(layers))]
        crossed = {
            place[node]
            for index, layer in enumerate(layers)
            for node in layer.reads()
            if node in place and chain_of[place[node]] != chain_of[index]
        }
        if crossed <= ends:
            break
        ends |= crossed
    chains = groupby(range(len(layers)), chain_of.__getitem__)
    return [FusedChain(tuple(layers[index] for index in chain)) for _, chain in chains]


def _unused_after(steps: tuple[Step, ...]) -> dict[int, list[fx.Node]]:
    reads = [step.all_input_nodes if isinstance(step, fx.Node) else step.reads() for step in steps]
    last_use = {node: place for place, nodes in enumerate(reads) for node in nodes}
    unused: dict[int, list[fx.Node]] = {}
    for node, place in last_use.items():
        unused.setdefault(place, []).append(node)
    return unused
