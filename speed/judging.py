"""Each GPU kernel beside the best that plain PyTorch has for the same work: `python speed/judging.py --out FILE.csv`.

In bf16, at the layers of `resnet-3block` and ResNet-20: 10 clients with weights of their own and 50 images each, and
5,000 images with common weights. Everything is timed as a CUDA graph, so that launches cost nobody anything. Plain
PyTorch is cuDNN's convolution on channels-last images, client by client or with a group per client, and `torch.compile`
of what is no convolution. `gain` is the best of them in units of ours.
"""

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from speed.kernels import COPIES, NETWORKS, SEED, Operands, Shape, milliseconds, operands, randoms, residual_layers
from torch import Tensor

from fedade import kernels
from fedade.kernels import Affine, compile_side_by_side, reference
from fedade.kernels.folding_lanes import LayerParameters, PartialGradients, folded, unfolded
from fedade.kernels.launch import Epilogue, convolve, input_gradient, weight_gradient
from fedade.kernels.layer import Layer

COLUMNS = ("kernel", "shape", "clients", "samples", "milliseconds", "plain", "plain_milliseconds", "gain")
RESNET_20 = residual_layers(32, [(16, 16, 1), (16, 32, 2), (32, 64, 2)])
"""One block of each of its three stages; the shortcuts that pad are 1x1 convolutions here, as to our kernels."""
SHAPES = list(dict.fromkeys((*NETWORKS["resnet-3block"], *RESNET_20)))
FOLDED_LAYERS = 6
"""That are folded in one launch, as a network has them."""
Work = Callable[[int], object]


class Case(NamedTuple):
    """Work that ours and others do."""

    kernel: str
    shape: object
    clients: int
    samples: int
    ours: Work
    plain: dict[str, Work]


def convolution_cases(shape: Shape, clients: int, samples: int, generator: torch.Generator) -> Iterator[Case]:
    """A layer's forward product and, with weights of clients' own, its two gradients."""
    sets = [operands(shape, clients, samples, torch.bfloat16, generator) for _ in range(COPIES)]
    nchw = [[as_pytorch(one, client) for client in range(clients)] for one in sets]
    padding, stride = shape.kernel // 2, shape.stride

    def forward(one: Operands) -> Tensor:
        return reference.fused_convolution(one.images, one.weights, one.bias, None, Layer(0, stride))

    def backward(mask: list[bool], one: Operands) -> object:
        return torch.ops.aten.convolution_backward(
            one.gradient, one.images, one.weights, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], 1, mask
        )

    def each(work: Callable[[Operands], object]) -> Work:
        return lambda copy: [work(one) for one in nchw[copy]]

    def case(kernel: str, ours: Callable[[Operands], object], plain: Callable[[Operands], object]) -> Case:
        return Case(kernel, shape, clients, samples, lambda copy: ours(sets[copy]), {"cuDNN by client": each(plain)})

    found = case(
        "window_product, forward",
        lambda of: convolve(of.images, of.weights, stride, Epilogue(of.bias, rectified=True), "float32"),
        forward,
    )
    found.plain.update(grouped(sets, stride) if clients > 1 else {})
    yield found
    if clients > 1:
        yield case(
            "window_outer_product",
            lambda of: weight_gradient(of.images, of.gradient, shape.kernel, stride, "float32"),
            partial(backward, [False, True, False]),
        )
    if clients > 1 and shape.image.channels > 3:
        yield case(
            "window_product, input gradient",
            lambda of: input_gradient(of.gradient, of.weights, shape.image, stride, Epilogue(), "float32"),
            partial(backward, [True, False, False]),
        )


def as_pytorch(of: Operands, client: int) -> Operands:
    """One client's, in channels-last memory."""
    images, weights, gradient = (value[client].permute(0, 3, 1, 2) for value in (of.images, of.weights, of.gradient))
    return Operands(images, weights, of.bias[client], gradient)


def grouped(sets: list[Operands], stride: int) -> dict[str, Work]:
    """All clients in one convolution with a group each, as `vmap` writes it."""
    ready = [
        (
            of.images.permute(1, 0, 4, 2, 3).flatten(1, 2).contiguous(memory_format=torch.channels_last),
            of.weights.permute(0, 1, 4, 2, 3).flatten(0, 1).contiguous(memory_format=torch.channels_last),
            of.bias.flatten(),
            Layer(0, stride, groups=len(of.weights)),
        )
        for of in sets
    ]

    def work(copy: int) -> Tensor:
        images, weights, bias, layer = ready[copy]
        return reference.fused_convolution(images, weights, bias, None, layer)

    return {"cuDNN with groups": work}


def special_cases(generator: torch.Generator) -> Iterator[Case]:
    """Convolutions with groups or dilation, which our kernels see as zeros between weights."""
    images = [randoms(generator, 10, 50, 16, 16, 64).bfloat16().permute(0, 1, 4, 2, 3) for _ in range(COPIES)]
    for layer in (Layer(0, groups=2), Layer(0, groups=4), Layer(0, dilation=2), Layer(0, dilation=3)):
        weights = randoms(generator, 10, 64, 64 // layer.groups, 3, 3, scale=0.05)
        bias = randoms(generator, 10, 64)

        def run(layers: Callable[..., Tensor], layer: Layer, weights: Tensor, bias: Tensor, copy: int) -> Tensor:
            mapped = torch.func.vmap(lambda own, weight, offset: layers([layer], [own], [weight], [offset]))
            result: Tensor = mapped(images[copy], weights, bias)
            return result

        ours, plain = (partial(run, module.fused_layers, layer, weights, bias) for module in (kernels, reference))
        shape = f"64->64 @16 3x3, {layer.groups} groups, dilation {layer.dilation}"
        yield Case("window_product, forward", shape, 10, 50, ours, {"vmap": plain})


def small_cases(generator: torch.Generator) -> Iterator[Case]:
    """What is no product: each beside itself in plain PyTorch, eager and compiled."""
    clients, samples, size, channels = 100, 50, 32, 32
    shape = f"{channels} @{size}"
    images = [
        randoms(generator, clients * samples, size, size, channels).bfloat16().permute(0, 3, 1, 2)
        for _ in range(COPIES)
    ]
    scale, shift, middle = (randoms(generator, channels) for _ in range(3))
    affine = kernels.Affine(scale, shift, middle, randoms(generator, channels).square(), 1e-5)
    grey = torch.randint(0, 256, (clients * samples, 3, size, size), generator=generator, device="cuda")
    pixels = [grey.to(torch.uint8).roll(copy, 0) for copy in range(COPIES)]
    mean, deviation = torch.full((3,), 120.0, device="cuda"), torch.full((3,), 60.0, device="cuda")

    def by_pixel(given: Tensor) -> Tensor:
        whole = reference.normalised_pixels(given, mean, deviation)
        return whole.to(torch.bfloat16, memory_format=torch.channels_last)

    def one(name: str, ours: Callable[..., object], plain: Callable[..., object], sets: list[Any]) -> Case:
        compiled = torch.compile(plain)
        ways = {"eager": lambda copy: plain(sets[copy]), "torch.compile": lambda copy: compiled(sets[copy])}
        return Case(name, shape, clients, samples, lambda copy: ours(sets[copy]), ways)

    yield one("_moments", kernels.channel_moments, reference.channel_moments, images)
    for residual in (None, images[0]):
        yield one(
            "_scale" + (", residual" if residual is not None else ""),
            lambda given, residual=residual: kernels.normalised(given, affine, residual, True),
            lambda given, residual=residual: reference.normalised(given, affine, residual, True),
            images,
        )
    yield one(
        "_normalise", lambda given: kernels.normalised_pixels(given, mean, deviation, torch.bfloat16), by_pixel, pixels
    )
    yield from folding_cases(one, generator)
    tokens = [randoms(generator, 10, 800, 192) for _ in range(COPIES)]
    of_clients = randoms(generator, 10, 192), randoms(generator, 10, 192)

    def normed(module: Any, given: Tensor) -> Tensor:
        norm = partial(module.layer_norm, eps=1e-5, dtype=torch.bfloat16)
        result: Tensor = torch.func.vmap(norm)(given, *of_clients)
        return result

    yield one("norm_lanes._normalise", partial(normed, kernels), partial(normed, reference), tokens)
    classes = 10
    ratios = torch.rand(clients, samples, classes, generator=generator, device="cuda", dtype=torch.float64)
    counts = torch.rand(clients, classes, 2, generator=generator, device="cuda", dtype=torch.float64)
    start = torch.full((classes,), 1 / classes, device="cuda", dtype=torch.float64)
    matrix = 0.1 * torch.rand(classes, classes, generator=generator, device="cuda", dtype=torch.float64)
    for name, function, given in (
        ("_mixtures", "mixture_weights", (ratios, counts, start, 20)),
        ("_iterations", "absolute_iterations", (counts[..., 0], counts[..., 1], matrix, 0.15, 400)),
    ):
        ours, plain = (
            lambda _copy, module=module, function=function, given=given: getattr(module, function)(*given)
            for module in (kernels, reference)
        )
        yield Case(name, f"{classes} classes", clients, samples, ours, {"eager": plain})


def folding_cases(one: Callable[..., Case], generator: torch.Generator) -> Iterator[Case]:
    """Folding the normalisations of several layers into the weights of 10 clients, and back."""
    weights = [randoms(generator, 10, 64, 64, 3, 3) for _ in range(COPIES)]
    scale, shift, mean = (randoms(generator, 10, 64) for _ in range(3))
    variance = randoms(generator, 10, 64).square() + 0.5
    eps = [1e-5] * FOLDED_LAYERS
    # By row, output, column and channel, of 4 splits of the samples.
    pieces, of_bias = randoms(generator, 10, 4, 3 * 64 * 3 * 64), randoms(generator, 10, 4, 64)
    partial_gradients = [PartialGradients(pieces, of_bias, 1, 3, 1, 64)] * FOLDED_LAYERS

    def layers(given: Tensor) -> list[LayerParameters]:
        return [LayerParameters(given, None, scale, shift, mean, variance)] * FOLDED_LAYERS

    def by_layer(weight: Tensor, *affine: Tensor) -> tuple[Tensor, Tensor]:
        return reference.folded(weight, None, Affine(*affine, 1e-5))

    def plain(given: Tensor) -> object:
        both = [torch.func.vmap(by_layer)(given, scale, shift, mean, variance) for _ in eps]
        return [(weight.permute(0, 1, 3, 4, 2).to(torch.bfloat16), bias) for weight, bias in both]

    def layer_back(given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        narrow, of_shift = (variance + 1e-5).rsqrt(), of_bias.sum(1)
        gradient = pieces.sum(1).view(10, 3, 64, 3, 64).permute(0, 2, 4, 1, 3)
        own = gradient * (scale * narrow)[:, :, None, None, None]
        return own.contiguous(), ((gradient * given).sum((2, 3, 4)) - mean * of_shift) * narrow, of_shift

    yield one("fold_kernel", lambda given: folded(layers(given), eps, [64] * len(eps), torch.bfloat16), plain, weights)
    yield one(
        "unfold_kernel",
        lambda given: unfolded(layers(given), eps, partial_gradients),
        lambda given: [layer_back(given) for _ in eps],
        weights,
    )


def judged(case: Case) -> dict[str, object]:
    """Both times; who fails says why in place of a time."""
    row: dict[str, object] = dict(zip(COLUMNS, (case.kernel, case.shape, case.clients, case.samples), strict=False))
    try:
        ours = milliseconds(case.ours)
        times = {name: milliseconds(work) for name, work in case.plain.items()}
    except Exception as error:  # noqa: BLE001 - the other kernels are worth measuring all the same
        return row | {"plain": f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"}
    best = min(times, key=times.__getitem__)
    return row | {
        "milliseconds": round(ours, 4),
        "plain": best,
        "plain_milliseconds": round(times[best], 4),
        "gain": round(times[best] / ours, 2),
    }


def cases() -> Iterator[Case]:
    """All of them, the most important first."""
    generator = torch.Generator("cuda").manual_seed(SEED)
    for clients, samples in ((10, 50), (1, 5000)):
        for shape in SHAPES:
            yield from convolution_cases(shape, clients, samples, generator)
    yield from small_cases(generator)
    yield from special_cases(generator)


def main() -> None:
    """Write one line per kernel and shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--budget", type=float, default=120.0, help="seconds, in all")
    options = parser.parse_args()
    begun = time.perf_counter()
    torch.backends.cudnn.benchmark = True
    written = options.out.open("w", buffering=1) if options.out else sys.stdout
    rows = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    rows.writeheader()
    with torch.no_grad():
        compile_side_by_side(lambda: [case.ours(0) for case in cases()])
        for case in cases():
            if time.perf_counter() - begun > options.budget:
                break
            rows.writerow(judged(case))


if __name__ == "__main__":
    main()
