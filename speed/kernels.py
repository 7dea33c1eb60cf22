"""What measurements of single kernels on a GPU have in common: layers and their operands, and the time of a call."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.kernels.geometry import Image, convolved

COPIES = 4
"""Sets of tensors that timings rotate among, so that they do not measure the cache."""
SEED = 0


class Shape(NamedTuple):
    """One convolution: source image, output channels, kernel, stride."""

    image: Image
    outputs: int
    kernel: int = 3
    stride: int = 1

    @property
    def result(self) -> Image:
        return convolved(self.image, self.outputs, self.stride)

    def __str__(self) -> str:
        image = self.image
        name = f"{image.channels}->{self.outputs} @{image.height}"
        return f"{name} {self.kernel}x{self.kernel}" + (f" /{self.stride}" if self.stride > 1 else "")


def residual_layers(size: int, blocks: Sequence[tuple[int, int, int]]) -> list[Shape]:
    """A 3x3 stem and residual blocks, each given by its inputs, outputs and stride."""
    shapes = [Shape(Image(size, size, 3), blocks[0][0])]
    image = shapes[0].result
    for _, outputs, stride in blocks:
        shapes.append(Shape(image, outputs, 3, stride))
        if stride > 1 or image.channels != outputs:
            shapes.append(Shape(image, outputs, 1, stride))
        image = shapes[-1].result
        shapes.append(Shape(image, outputs))
    return shapes


NETWORKS = {
    "resnet-3block": residual_layers(32, [(32, 32, 1), (32, 64, 2), (64, 128, 2)]),
    "resnet18": residual_layers(
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
