"""Networks from elsewhere, by the fused convolutions where these know their layers.

`torch.fx` writes a module's pass down as a graph. Where normalisation has fixed statistics, a convolution, the
normalisation after it, a sum and a relu are one `Layer`, and layers that follow one another are one call. What is not
recognised runs as it is, in the same precision. The module itself is never changed: a plan says how its parts run.
"""

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from fedade.core.normalisation import current_pass
from fedade.kernels import Affine, Layer, convolved, fused_layers
from fedade.models.batch_norm import applied
from fedade.models.convolving import statistics_are_fixed
from fedade.models.halving import ProductsInBf16
from fedade.models.recognising import RecognisedLayer, changes_its_input, graph_of, recognised_layers, unknown


@dataclass(frozen=True)
class FusedChain:
    """Layers that are run by one call, the last one for its output."""

    layers: tuple[RecognisedLayer, ...]

    @property
    def output(self) -> fx.Node:
        return self.layers[-1].output

    def reads(self) -> list[fx.Node]:
        inside = {layer.output for layer in self.layers}
        return list(dict.fromkeys(node for layer in self.layers for node in layer.reads() if node not in inside))

    def run(self, module: nn.Module, values: dict[fx.Node, Any]) -> Tensor:
        precision, given = current_pass().precision, self.reads()
        if not statistics_are_fixed(module):
            return self._one_by_one(module, {node: values[node] for node in given})
        images = [values[node].to(torch.bfloat16) if precision == "bf16" else values[node] for node in given]
        number = {node: place for place, node in enumerate((*given, *(layer.output for layer in self.layers)))}
        layers = [
            Layer(
                number[layer.source],
                layer.stride,
                None if layer.residual is None else number[layer.residual],
                layer.relu,
                layer.groups,
                layer.dilation,
            )
            for layer in self.layers
        ]
        weights, biases = zip(*(layer.weights(module) for layer in self.layers), strict=True)
        return fused_layers(layers, images, weights, biases, tf32=precision == "tf32")

    def _one_by_one(self, module: nn.Module, values: dict[fx.Node, Tensor]) -> Tensor:
        """The same where statistics depend on what a layer is shown: they are asked for in the order of the graph."""
        precision, uses = current_pass().precision, Counter(node for layer in self.layers for node in layer.reads())

        def read(node: fx.Node) -> Tensor:
            uses[node] -= 1
            value = values[node] if uses[node] else values.pop(node)
            return value.to(torch.bfloat16) if precision == "bf16" else value

        def convolution(
            layer: RecognisedLayer, bias: Tensor | None, weight: Tensor, added: Tensor | None = None
        ) -> Tensor:
            images, tf32 = [read(layer.source)], precision == "tf32"
            if bias is None and added is None and not layer.relu:
                return convolved(images[0], weight, layer.stride, tf32, layer.groups, layer.dilation)
            one = Layer(0, layer.stride, None if added is None else 1, layer.relu, layer.groups, layer.dilation)
            images += [] if added is None else [added]
            offset = weight.new_zeros(len(weight)) if bias is None else bias
            return fused_layers([one], images, [weight], [offset], tf32=tf32)

        begun: dict[fx.Node, tuple[Tensor, Affine]] = {}
        for _, ends, place in sorted(
            (when, ends, place) for place, layer in enumerate(self.layers) for ends, when in enumerate(layer.places)
        ):
            layer = self.layers[place]
            weight, bias, norm = layer.weights.apart(module)
            if not ends and norm is not None:
                hidden = convolution(replace(layer, relu=False), bias, weight)
                begun[layer.output] = hidden, norm.affine(hidden)
            elif ends:
                added = None if layer.residual is None else read(layer.residual)
                values[layer.output] = (
                    applied(*begun.pop(layer.output), added, layer.relu)
                    if layer.output in begun
                    else convolution(layer, bias, weight, added)
                )
        return values[self.output]


Step = fx.Node | FusedChain
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
        interpreter, values = fx.Interpreter(module, graph=self.graph), dict[fx.Node, Any]()
        given = iter((inputs,))
        for place, step in enumerate(self.steps):
            if isinstance(step, FusedChain):
                values[step.output] = step.run(module, values)
            elif step.op == "placeholder":
                values[step] = next(given, step.args[0] if step.args else None)
            else:
                arguments = fx.node.map_arg(step.args, values.__getitem__)
                keywords = fx.node.map_arg(step.kwargs, values.__getitem__)
                with in_precision():
                    result = getattr(interpreter, step.op)(step.target, arguments, keywords)
                if step.op == "output":
                    return result
                values[step] = result
            for node in self.unused_after.get(place, ()):
                del values[node]
        raise AssertionError("a graph ends with its output")

    def fused_modules(self) -> list[str]:
        chains = [step for step in self.steps if isinstance(step, FusedChain)]
        nodes = [node for chain in chains for layer in chain.layers for node in layer.nodes]
        return [str(node.target) for node in nodes if node.op == "call_module"]


class ForeignBody(nn.Sequential):
    """A first layer that standardises inputs, and the body of a network from elsewhere."""

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
    known.

    A trace holds for the way that one pass took. Where it does not give what the module gives, it is dropped.
    """
    with torch.no_grad():
        try:
            graph = graph_of(module, inputs)
            steps = tuple(_in_chains(graph, module))
            plan = TracedPass(graph, steps, _unused_after(steps))
            if not plan.fused_modules():
                return None, "no layer is a convolution that can be fused"
            if not rounds_to(plan.run(module, inputs), module(inputs)):
                return None, "the trace of its pass gives other values than the module"
        except Exception as error:  # noqa: BLE001 - whatever a stranger's code does with a stand-in for a tensor
            return None, f"its pass cannot be traced: {type(error).__name__}: {error}"
    return plan, ""


def forward_traced(plan: TracedPass | None, module: nn.Module, inputs: Tensor) -> Any:
    """A pass of the module in the precision in force: by the plan, if there is one, unless it is trained."""
    if plan is not None and not module.training:
        return plan.run(module, inputs)
    with in_precision():
        return module(inputs)


def in_precision() -> AbstractContextManager[object]:
    """Products of the layers that run as they are have the precision of the pass, as fused ones do."""
    return ProductsInBf16() if current_pass().precision == "bf16" else nullcontext()


def fused_and_other_layers(body: nn.Module) -> tuple[list[str], list[str]]:
    """Names of the convolutions and matrix products of a body that run fused, and of those that run as they are."""
    plan = getattr(body, "plan", None)
    fused = {*plan.fused_modules()} if isinstance(plan, TracedPass) else set()
    inner = body[1] if isinstance(body, ForeignBody) else body
    names = [name for name, part in inner.named_modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    ours = not isinstance(body, ForeignBody)  # our own networks are written in fused layers
    known = {name for name in names if name in fused or (ours and isinstance(inner.get_submodule(name), nn.Conv2d))}
    return [name for name in names if name in known], [name for name in names if name not in known]


def why_as_it_is(body: nn.Module, name: str) -> str:
    """Why a layer of a body is not fused."""
    part = (body[1] if isinstance(body, ForeignBody) else body).get_submodule(name)
    return (unknown(part) or "not traced") if isinstance(part, nn.Conv2d) else "a product of matrices"


def rounds_to(ours: Any, theirs: Any) -> bool:
    """Whether two outputs differ by no more than rounding, in units of the largest entry."""
    if not isinstance(ours, Tensor) or not isinstance(theirs, Tensor) or ours.shape != theirs.shape:
        return False
    return torch.allclose(ours, theirs, 0, ROUNDING * float(theirs.abs().max()))


def _in_chains(graph: fx.Graph, module: nn.Module) -> list[Step]:
    """The graph's nodes in their order; layers that follow one another are put off until their result is needed."""
    by_output = {layer.output: layer for layer in recognised_layers(module, graph)}
    inside = {node for layer in by_output.values() for node in layer.nodes}
    steps: list[Step] = []
    waiting: list[RecognisedLayer] = []
    for node in graph.nodes:
        if node in by_output:
            waiting.append(by_output[node])
        elif node not in inside:
            outputs = {layer.output for layer in waiting}
            if node.op == "output" or outputs.intersection(node.all_input_nodes) or changes_its_input(node, module):
                steps += _cut(waiting)
                waiting = []
            steps.append(node)
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
    chains = [
        [layer for layer, number in zip(layers, chain_of, strict=True) if number == one] for one in sorted({*chain_of})
    ]
    return [FusedChain(tuple(chain)) for chain in chains]


def _unused_after(steps: tuple[Step, ...]) -> dict[int, list[fx.Node]]:
    last_use: dict[fx.Node, int] = {}
    for place, step in enumerate(steps):
        reads = step.reads() if isinstance(step, FusedChain) else step.all_input_nodes
        last_use.update(dict.fromkeys(reads, place))
    unused: dict[int, list[fx.Node]] = {}
    for node, place in last_use.items():
        unused.setdefault(place, []).append(node)
    return unused
