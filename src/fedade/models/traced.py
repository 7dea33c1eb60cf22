"""Any network, by the fused convolutions where these know its layers.

`torch.fx` writes a module's pass down as a graph. Where normalisation has fixed statistics, a convolution, the
normalisation after it, a sum and a relu are one `Layer`, and layers that follow one another are one call. What is not
recognised runs as it is, in the same precision. Of the module nothing is changed but for constants that its plan reads:
a plan says how its parts run.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from threading import Lock, get_ident
from typing import Any

import torch
from torch import Tensor, fx, nn

from fedade.core.normalisation import PassContext, current_pass, making_pass
from fedade.kernels import packed_weights, runs_fused
from fedade.models.attention import UNKNOWN_ATTENTION, TokenAttention, other_attention, part_of, recognised_attentions
from fedade.models.batch_norm import BatchNorm
from fedade.models.fused_steps import FusedChain, TokenNorm, in_precision, run_node
from fedade.models.image import GlobalAverage
from fedade.models.patches import PatchProduct, is_patch_product
from fedade.models.recognising import (
    Placed,
    RecognisedLayer,
    average_pixels_plainly,
    is_token_norm,
    leave_out_identities,
    recognised_layers,
    unknown,
    writes_input,
)

Step = fx.Node | FusedChain | TokenNorm | TokenAttention | PatchProduct
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
        packed = self._packed(module)
        for place, step in enumerate(self.steps):
            if isinstance(step, FusedChain | PatchProduct):
                values[step.output] = step.run(module, values, packed)
            elif not isinstance(step, fx.Node):
                values[step.output] = step.run(module, values)
            elif step.op == "placeholder":
                values[step] = next(given, step.args[0] if step.args else None)
            else:
                if step.op == "output":
                    return fx.node.map_arg(step.args[0], values.__getitem__)
                with in_precision():
                    values[step] = run_node(step, module, values)
            for node in self.unused_after.get(place, ()):
                del values[node]
        raise AssertionError("a graph ends with its output")

    def _packed(self, module: nn.Module) -> dict[fx.Node, Tensor]:
        """The weights of all products of tokens in the precision of the pass, by the layers' outputs."""
        layers = [layer for layer in self.fused_layers() if layer.of_tokens]
        of_patches = [step for step in self.steps if isinstance(step, PatchProduct)]
        weights = [layer.weights.apart(module)[0] for layer in layers] + [one.weight(module) for one in of_patches]
        low = current_pass().precision == "bf16"
        packed = packed_weights(weights, torch.bfloat16 if low or not weights else weights[0].dtype)
        outputs = [layer.output for layer in layers] + [one.output for one in of_patches]
        return dict(zip(outputs, packed, strict=False))

    @property
    def convolves(self) -> bool:
        """Whether images are convolved by fused layers."""
        return any(isinstance(step, FusedChain) and not step.of_tokens for step in self.steps)

    def fused_layers(self) -> list[RecognisedLayer]:
        return [layer for step in self.steps if isinstance(step, FusedChain) for layer in step.layers]

    def fused_modules(self) -> list[str]:
        nodes = [node for layer in self.fused_layers() for node in layer.nodes]
        nodes += [step.output for step in self.steps if isinstance(step, PatchProduct)]
        return [str(node.target) for node in nodes if node.op == "call_module"]

    def attentions(self) -> tuple[list[str], list[str]]:
        """Names of the parts whose attention is one kernel, and of those whose attention runs as it is."""
        fused = [step.name for step in self.steps if isinstance(step, TokenAttention)]
        nodes = [step for step in self.steps if isinstance(step, fx.Node)]
        return fused, list(dict.fromkeys(part_of(node) for node in nodes if other_attention(node)))


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
            # A trace holds what hooks have kept as constants, which are right for the same inputs.
            if not all(rounds_to(plan.run(module, rows), module(rows)) for rows in (inputs, inputs.flip(0))):
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
    """Names of the convolutions, matrix products and attentions of a body that run fused, and of those that run as they
    are."""
    plan = getattr(body, "plan", None)
    fused = {*plan.fused_modules()} if isinstance(plan, TracedPass) else set()
    attending, others = plan.attentions() if isinstance(plan, TracedPass) else ([], [])
    inner = body[1] if isinstance(body, TracedBody) else body
    names = [name for name, part in inner.named_modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    known = [name for name in names if name in fused]
    return known + attending, [name for name in names if name not in fused] + others


def why_as_it_is(body: nn.Module, name: str) -> str:
    """Why a layer of a body is not fused."""
    part = dict((body[1] if isinstance(body, TracedBody) else body).named_modules()).get(name)
    if isinstance(part, nn.Conv2d):
        return unknown(part) or "not traced"
    return "a product of matrices" if isinstance(part, nn.Linear) else UNKNOWN_ATTENTION


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


def _note_shapes(graph: fx.Graph, module: nn.Module, inputs: Tensor) -> None:
    """Notes shapes and places of tensors. `fx.Interpreter` would make a lock between processes for a progress bar, of
    which a worker that ends at once leaves a semaphore behind."""
    values, given = dict[fx.Node, Any](), iter((inputs,))  # all are kept: no two tensors have had the same memory
    for node in graph.nodes:
        if node.op == "output":
            return
        if node.op == "placeholder":
            result = next(given, node.args[0] if node.args else None)
        else:
            result = run_node(node, module, values)
        values[node] = result
        if isinstance(result, Tensor):
            node.meta |= {"shape": tuple(result.shape), "steps": result.stride(), "first": result.storage_offset()}
            node.meta["contiguous"] = result.is_contiguous()
        if isinstance(result, int | float):
            node.meta["number"] = result
        one = result[0] if isinstance(result, tuple | list) and result else result
        node.meta["memory"] = one.untyped_storage().data_ptr() if isinstance(one, Tensor) else None


def graph_of(module: nn.Module, inputs: Tensor) -> fx.Graph:
    with _Tracer.one_at_a_time:
        graph = _Tracer().trace(module)
    owner = fx.GraphModule(module, graph)
    graph.eliminate_dead_code()
    leave_out_identities(graph, module)
    average_pixels_plainly(graph, module)
    _note_shapes(graph, owner, inputs)
    graph.owning_module = None  # a graph outlives the tensors that it was traced with
    return graph


def rounds_to(ours: Any, theirs: Any) -> bool:
    """Whether two outputs differ by no more than rounding, in units of the largest entry."""
    if not isinstance(ours, Tensor) or not isinstance(theirs, Tensor) or ours.shape != theirs.shape:
        return False
    return torch.allclose(ours, theirs, 0, ROUNDING * float(theirs.abs().max()))


def _in_chains(graph: fx.Graph, module: nn.Module) -> list[Step]:
    """The graph's nodes in their order; layers that follow one another are put off until their result is needed."""
    by_output = {layer.output: layer for layer in recognised_layers(module, graph)}
    multiplied = {node for layer in by_output.values() if layer.of_tokens for node in layer.nodes[:1]}
    inside = {node for layer in by_output.values() for node in layer.nodes}
    written = [place for place, node in enumerate(graph.nodes) if writes_input(node, module)]
    attentions = {one.output: one for one in recognised_attentions(graph, written)}
    inside |= {node for one in attentions.values() for node in one.nodes[:-1]}
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
            step: Step = attentions.get(node, node)
            if node.op == "output" or outputs.intersection(_reads(step)) or writes_input(node, module):
                steps += _cut(waiting)
                waiting = []
            if is_token_norm(node, module):
                step = TokenNorm(node, multiplied.issuperset(node.users))
            elif is_patch_product(node, module):
                step = PatchProduct(node)
            steps.append(step)
    return steps


def _reads(step: Step) -> list[fx.Node]:
    return step.all_input_nodes if isinstance(step, fx.Node) else step.reads()


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
    last_use = {node: place for place, step in enumerate(steps) for node in _reads(step)}
    unused: dict[int, list[fx.Node]] = {}
    for node, place in last_use.items():
        unused.setdefault(place, []).append(node)
    return unused
