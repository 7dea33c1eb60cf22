"""The fused convolutions on a GPU: errors against float64, time per layer and kernel, and whole networks.

python speed/kernels.py --check --layers --step --forward
"""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, product
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.func import grad, vmap

from fedade.kernels import fused_layers, reference
from fedade.kernels.geometry import Image, convolved
from fedade.kernels.launch import Epilogue, convolve, input_gradient, weight_gradient
from fedade.kernels.layer import Layer

COPIES = 4
"""Sets of tensors that timings rotate among, so that they do not measure the cache."""
SEED = 0


class Mode(NamedTuple):
    """Number format of images, and of products of float32."""

    dtype: torch.dtype
    tf32: bool

    @property
    def precision(self) -> str:
        return "tf32" if self.tf32 else "float32"


MODES = {
    "bf16": Mode(torch.bfloat16, False),
    "float32": Mode(torch.float32, False),
    "tf32": Mode(torch.float32, True),
}


class Shape(NamedTuple):
    """One convolution: source image, output channels, kernel, stride."""

    image: Image
    outputs: int
    kernel: int = 3
    stride: int = 1

    @property
    def result(self) -> Image:
        return convolved(self.image, self.outputs, self.stride)

    @property
    def operations(self) -> int:
        """Floating-point operations of one pass over one image."""
        return 2 * self.result.size * self.kernel**2 * self.image.channels

    def __str__(self) -> str:
        image = self.image
        name = f"{image.channels}->{self.outputs} @{image.height}"
        return f"{name} {self.kernel}x{self.kernel}" + (f" /{self.stride}" if self.stride > 1 else "")


class Network(NamedTuple):
    """A chain of layers, the shape of each, and the width of its features."""

    chain: Sequence[Layer]
    shapes: Sequence[Shape]
    width: int

    @property
    def operations(self) -> int:
        """Floating-point operations of a forward pass of one image."""
        return sum(shape.operations for shape in self.shapes)


def residual_network(size: int, blocks: Sequence[tuple[int, int, int]]) -> Network:
    """A 3x3 stem and residual blocks, each given by its inputs, outputs and stride."""
    image = Image(size, size, 3)
    shapes = [Shape(image, blocks[0][0])]
    image, layers = shapes[0].result, [Layer(0)]
    for _, outputs, stride in blocks:
        source, projects = len(layers), stride > 1 or image.channels != outputs
        shapes.append(Shape(image, outputs, 3, stride))
        layers.append(Layer(source, stride))
        if projects:
            shapes.append(Shape(image, outputs, 1, stride))
            layers.append(Layer(source, stride, relu=False))
        image = shapes[-1].result
        shapes.append(Shape(image, outputs))
        layers.append(Layer(source + 1, residual=source + 2 if projects else source))
    return Network(layers, shapes, image.channels)


NETWORKS = {
    "resnet-3block": residual_network(32, [(32, 32, 1), (32, 64, 2), (64, 128, 2)]),
    "resnet18": residual_network(
        64,
        [
            block
            for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2))
            for block in ((inputs, outputs, stride), (outputs, outputs, 1))
        ],
    ),
}


def randoms(generator: torch.Generator, *shape: int, scale: float = 1.0) -> Tensor:
    """Normal numbers on the GPU."""
    return scale * torch.randn(shape, generator=generator, device="cuda")


def milliseconds(work: Callable[[int], object], repeats: int = 20) -> float:
    """Median time of one call, from replays of a CUDA graph that holds one call per set of tensors."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for copy in range(COPIES):
            work(copy)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for copy in range(COPIES):
            work(copy)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    for event in events:
        event.record()
        graph.replay()
    torch.cuda.synchronize()
    times = sorted(start.elapsed_time(end) for start, end in pairwise(events))
    return times[len(times) // 2] / COPIES


class Operands(NamedTuple):
    """What the three products of a convolution work on."""

    images: Tensor
    weights: Tensor
    bias: Tensor
    gradient: Tensor


def operands(shape: Shape, lanes: int, samples: int, dtype: torch.dtype, generator: torch.Generator) -> Operands:
    """Random ones."""
    image, result = shape.image, shape.result
    fan = (shape.kernel**2 * image.channels) ** 0.5
    return Operands(
        randoms(generator, lanes, samples, image.height, image.width, image.channels).to(dtype),
        randoms(generator, lanes, shape.outputs, shape.kernel, shape.kernel, image.channels, scale=1 / fan).to(dtype),
        randoms(generator, lanes, shape.outputs),
        randoms(generator, lanes, samples, result.height, result.width, result.channels).to(dtype),
    )


def products(shape: Shape, precision: str) -> dict[str, Callable[[Operands], object]]:
    """The three products of a convolution; the stem's input never needs a gradient."""
    result: dict[str, Callable[[Operands], object]] = {
        "forward": lambda of: convolve(
            of.images, of.weights, shape.stride, Epilogue(of.bias, rectified=True), precision
        ),
        "weights": lambda of: weight_gradient(of.images, of.gradient, shape.kernel, shape.stride, precision),
    }
    if shape.image.channels > 3:
        result["input"] = lambda of: input_gradient(
            of.gradient, of.weights, shape.image, shape.stride, Epilogue(gate=of.images), precision
        )
    return result


def time_layers(network: Network, mode: Mode, clients: int, samples: int) -> None:
    """Print time, rate and least traffic of every layer and product."""
    print("| layer | product | ms | TFLOP/s | GB/s |\n|---|---|---|---|---|")
    for shape in dict.fromkeys(network.shapes):
        generator = torch.Generator("cuda").manual_seed(SEED)
        sets = [operands(shape, clients, samples, mode.dtype, generator) for _ in range(COPIES)]
        for name, work in products(shape, mode.precision).items():
            time = milliseconds(lambda copy, work=work, sets=sets: work(sets[copy]))
            rate = clients * samples * shape.operations / time / 1e9
            moved = clients * samples * (shape.image.size + shape.result.size) * mode.dtype.itemsize
            print(f"| {shape} | {name} | {time:.4f} | {rate:.1f} | {moved / time / 1e6:.0f} |", flush=True)


def error(result: Tensor, expected: Tensor) -> float:
    """Relative, in the Euclidean norm."""
    return float((result.double() - expected).norm() / expected.norm())


def check(network: Network, mode: Mode) -> None:
    """Print the worst error of all gradients against float64, and whether two runs agree in every bit."""
    generator = torch.Generator("cuda").manual_seed(SEED)
    size = network.shapes[0].image.height
    images = randoms(generator, 3, 2, 3, size, size).to(mode.dtype)
    parameters = [parameter.to(mode.dtype).float() for parameter in network_parameters(network, 3, generator)]
    fused = partial(fused_layers, tf32=mode.tf32)
    got, again = (per_client_gradients(fused, network, parameters, images) for _ in range(2))
    exact = per_client_gradients(fused, network, [parameter.double() for parameter in parameters], images.double())
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=mode.tf32):
        plain = per_client_gradients(reference.fused_layers, network, parameters, images)
    ours, theirs = (max(map(error, gradients, exact)) for gradients in (got, plain))
    same = all(torch.equal(one, two) for one, two in zip(got, again, strict=True))
    print(f"gradients: worst error {ours:.1e}, plain PyTorch's {theirs:.1e}; same bits twice: {same}", flush=True)


def network_parameters(network: Network, clients: int, generator: torch.Generator) -> list[Tensor]:
    """Weights and biases of every layer, then those of the head, per client."""
    weights = [
        randoms(
            generator,
            clients,
            shape.outputs,
            shape.image.channels,
            shape.kernel,
            shape.kernel,
            scale=(2 / (shape.kernel**2 * shape.image.channels)) ** 0.5,
        )
        for shape in network.shapes
    ]
    biases = [randoms(generator, clients, shape.outputs, scale=0.1) for shape in network.shapes]
    return [*weights, *biases, randoms(generator, clients, 10, network.width, scale=0.1)]


def logits(layers: Callable[..., Tensor], network: Network, parameters: Sequence[Tensor], images: Tensor) -> Tensor:
    """Class scores of one client."""
    *chain, head = parameters
    middle = len(network.shapes)
    features = layers(network.chain, [images], chain[:middle], chain[middle:])
    return F.linear(features.mean((2, 3), dtype=torch.promote_types(features.dtype, torch.float32)), head)


def per_client_gradients(
    layers: Callable[..., Tensor], network: Network, parameters: Sequence[Tensor], images: Tensor
) -> list[Tensor]:
    """Gradients of a label-free loss, the entropy of predictions, of all clients at once."""

    def entropy(parameters: Sequence[Tensor], images: Tensor) -> Tensor:
        scores = logits(layers, network, parameters, images).log_softmax(-1)
        return -(scores.exp() * scores).sum(-1).mean()

    result: list[Tensor] = vmap(grad(entropy))(list(parameters), images)
    return result


def time_step(network: Network, mode: Mode, clients: int, samples: int) -> None:
    """Print the time of forward and backward of all clients, each with its own weights."""
    generator = torch.Generator("cuda").manual_seed(SEED)
    size = network.shapes[0].image.height
    parameters = network_parameters(network, clients, generator)
    sets = [channels_last(generator, clients, samples, size, mode) for _ in range(COPIES)]
    fused = partial(fused_layers, tf32=mode.tf32)
    time = milliseconds(lambda copy: per_client_gradients(fused, network, parameters, sets[copy]))
    rate = 3 * network.operations * clients * samples / time / 1e9
    print(f"joint step of {clients} x {samples}: {time:.3f} ms, {rate:.0f} TFLOP/s", flush=True)


def time_forward(network: Network, mode: Mode, images: int) -> None:
    """Print the time of one pass with shared weights, by our kernels and by cuDNN."""
    generator = torch.Generator("cuda").manual_seed(SEED)
    size = network.shapes[0].image.height
    parameters = [parameter[0] for parameter in network_parameters(network, 1, generator)]
    sets = [channels_last(generator, 1, images, size, mode)[0] for _ in range(COPIES)]
    for kind, layers in (("fused", partial(fused_layers, tf32=mode.tf32)), ("cuDNN", reference.fused_layers)):
        with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=mode.tf32):
            time = milliseconds(lambda copy, layers=layers: logits(layers, network, parameters, sets[copy]))
        rate = network.operations * images / time / 1e9
        print(f"forward of {images}, {kind}: {time:.3f} ms, {rate:.0f} TFLOP/s", flush=True)


def channels_last(generator: torch.Generator, clients: int, samples: int, size: int, mode: Mode) -> Tensor:
    """Images of every client, `[clients, samples, 3, size, size]`."""
    return randoms(generator, clients, samples, size, size, 3).to(mode.dtype).permute(0, 1, 4, 2, 3)


def main() -> None:
    """Print what was asked for."""
    words = argparse.ArgumentParser()
    for word in ("check", "layers", "step", "forward"):
        words.add_argument(f"--{word}", action="store_true")
    words.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    words.add_argument("--networks", nargs="+", choices=NETWORKS, default=["resnet-3block"])
    for word, default in (("clients", 10), ("samples", 50), ("images", 5000)):
        words.add_argument(f"--{word}", type=int, default=default)
    said = words.parse_args()
    for word, name in product(said.modes, said.networks):
        mode, network = MODES[word], NETWORKS[name]
        print(f"{name}, {word}")
        if said.check:
            check(network, mode)
        if said.step:
            time_step(network, mode, said.clients, said.samples)
        if said.forward:
            time_forward(network, mode, said.images)
        if said.layers:
            time_layers(network, mode, said.clients, said.samples)


if __name__ == "__main__":
    main()
