"""Which block sizes are fastest for a layer's products: `python speed/tilings.py --out FILE.csv`.

What `fedade.kernels.tilings` chooses comes first of every layer and product, then the fastest others that were tried.
Layers are 3x3 convolutions, or with `--tokens` those of a tiny vision transformer. Every product has its share of the
budget, in which what is most like the choice is tried first.
"""

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from speed.judging import SHAPES
from speed.kernels import COPIES, NETWORKS, SEED, Operands, Shape, milliseconds, operands

from fedade.kernels import compile_side_by_side
from fedade.kernels.geometry import Image
from fedade.kernels.launch import Epilogue, convolve, input_gradient, weight_gradient
from fedade.kernels.tilings import (
    SplitTiling,
    Tiling,
    input_gradient_tiling,
    power_of_two,
    product_tiling,
    weight_gradient_tiling,
)

KEPT = 3
FIELDS = ("outputs", "groups", "breadth", "depth", "warps", "stages")
OF_SPLITS = ("programs", "with_sums")
COLUMNS = ("product", "shape", "clients", "samples", "milliseconds", "chosen", "tried", *FIELDS, *OF_SPLITS)
CONVOLUTIONS = [
    shape
    for shape in dict.fromkeys((*SHAPES, *NETWORKS["resnet18"]))
    if shape.kernel == 3 and (shape in SHAPES or shape.image.channels >= 128)
]
TOKENS = [
    Shape(Image(1, 17, channels), outputs, kernel=1)
    for channels, outputs in ((192, 576), (192, 192), (192, 768), (768, 192))
]
"""Of 16 patches and one more: queries, keys and values; what attention gives; and the two layers after it."""
MOST_SHARED, MOST_SUMS = 227 * 1024, 128
"""Bytes of a multiprocessor's memory for blocks in flight, and of a thread's 255 registers those for sums."""
AnyTiling = Tiling | SplitTiling
Trial = tuple[AnyTiling, Callable[[Operands], object]]


def fits(tiling: AnyTiling) -> bool:
    """Whether blocks of bf16 in flight fit into shared memory, and sums of float32 into registers."""
    if isinstance(tiling, SplitTiling):
        block, rows = tiling.block, 3 if tiling.rows_together else 1
        flying = block.groups * (block.depth + rows * block.breadth)
        sums = block.breadth * (rows * block.depth + (block.groups if tiling.with_sums else 0))
    else:
        block = tiling
        flying, sums = block.depth * (block.groups + block.breadth), block.groups * block.breadth
    return block.stages * flying * 2 <= MOST_SHARED and sums <= MOST_SUMS * 32 * block.warps


def tilings(least: int, step: int, channels: int, output_channels: int) -> Iterator[Tiling]:
    """Worth trying for a 3x3 convolution's product with so many channels of its source and its output."""
    for columns, groups, depth, (warps, stages), widest in product(
        (1, 2, 4, 8), (64, 128, 256), (32, 64), ((4, 3), (4, 4), (8, 3), (8, 4)), (128, 256)
    ):
        outputs, breadth = step * columns, power_of_two(step * columns * output_channels)
        small, large = breadth <= 128 or columns == 1, groups * min(widest, breadth) > 128 * 128
        useful = widest == 128 or breadth >= 256
        if (warps, stages) == (8, 4) and not large:
            continue
        if small and useful and groups * min(128, breadth) >= least and depth <= power_of_two((columns + 2) * channels):
            yield Tiling(outputs, groups, min(widest, breadth), depth, warps, stages)


def token_tilings(channels: int, output_channels: int) -> Iterator[Tiling]:
    """Worth trying for a product of tokens; more warps than have something to do are not."""
    blocks = product((64, 128, 256), (64, 128, 256), (32, 64, 128), (4, 8), (2, 3, 4))
    for groups, breadth, depth, warps, stages in blocks:
        if breadth <= power_of_two(output_channels) and depth <= channels and groups * breadth >= 1024 * warps:
            yield Tiling(1, groups, breadth, depth, warps, stages)


def token_splits(shape: Shape) -> Iterator[SplitTiling]:
    """Worth trying for the weights' gradient of a product of tokens: sums over groups, of breadth x depth weights. The
    bias's gradient is left to another kernel only where registers are short."""
    blocks = product((32, 64, 128), (64, 128, 256), (64, 128, 256), (4, 8), (2, 3, 4))
    for groups, breadth, depth, warps, stages in blocks:
        block = Tiling(1, groups, breadth, depth, warps, stages)
        inside = breadth <= power_of_two(shape.outputs) and depth <= power_of_two(shape.image.channels)
        if inside and breadth * depth >= 1024 * warps:
            yield SplitTiling(block, with_sums=fits(SplitTiling(block)))


def convolution_splits(now: SplitTiling) -> Iterator[SplitTiling]:
    """Worth trying for the weights' gradient of a 3x3 convolution."""
    for groups, (warps, stages), programs in product((32, 64, 128), ((4, 3), (4, 4), (8, 3)), (132, 264)):
        yield replace(now, block=replace(now.block, groups=groups, warps=warps, stages=stages), programs=programs)


def with_others(chosen: Any, others: Iterator[Any]) -> list[Any]:
    """What is chosen, then what fits of the others, the most like it first."""

    def like(tiling: AnyTiling) -> int:
        return sum(own != said for own, said in zip(_numbers(tiling), _numbers(chosen), strict=True))

    return [chosen, *sorted((one for one in dict.fromkeys(others) if one != chosen and fits(one)), key=like)]


def _numbers(tiling: AnyTiling) -> list[Any]:
    block = tiling.block if isinstance(tiling, SplitTiling) else tiling
    return [getattr(block, name) for name in FIELDS] + [getattr(tiling, name, "") for name in OF_SPLITS]


def trials(shape: Shape) -> Iterator[tuple[str, list[Trial]]]:
    """By product, what is chosen now and what could be."""
    image, stride, size = shape.image, shape.stride, shape.kernel
    of_tokens = size == 1

    def forward(tiling: Tiling) -> Trial:
        epilogue = lambda of: Epilogue(of.bias, rectified=not of_tokens)  # noqa: E731
        return tiling, lambda of: convolve(of.images, of.weights, stride, epilogue(of), "float32", tiling)

    def back(tiling: Tiling) -> Trial:
        gated = lambda of: Epilogue(gate=None if of_tokens else of.images)  # noqa: E731
        return tiling, lambda of: input_gradient(of.gradient, of.weights, image, stride, gated(of), "float32", tiling)

    def of_weights(tiling: SplitTiling) -> Trial:
        return tiling, lambda of: weight_gradient(of.images, of.gradient, size, stride, "float32", tiling)

    def of_products(step: int, channels: int, outputs: int) -> Iterator[Tiling]:
        return token_tilings(channels, outputs) if of_tokens else tilings(4096, step, channels, outputs)

    chosen = product_tiling(image.channels, shape.outputs, stride, 2, size)
    yield "forward", [*map(forward, with_others(chosen, of_products(1, image.channels, shape.outputs)))]
    chosen = input_gradient_tiling(shape.outputs, image.channels, stride, 2, size)
    yield "input", [*map(back, with_others(chosen, of_products(stride, shape.outputs, image.channels)))]
    now = weight_gradient_tiling(image.channels, shape.outputs, stride, 2)
    splits = token_splits(shape) if of_tokens else convolution_splits(now)
    yield "weights", [*map(of_weights, with_others(now, splits))]


def timed(work: Callable[[Operands], object], sets: list[Operands]) -> float:
    """Milliseconds; endless for what does not fit."""
    try:
        return milliseconds(lambda copy: work(sets[copy]), repeats=10)
    except Exception:  # noqa: BLE001 - too many registers, or too much shared memory
        torch.cuda.synchronize()
        return float("inf")


def tried(each: Sequence[Trial], sets: Sequence[list[Operands]], end: float) -> list[tuple[list[float], AnyTiling]]:
    """The choice and, until some time, others: milliseconds with each set of tensors. Some are compiled at a time, on
    all cores; nothing is tried where no time is left."""
    found: list[tuple[list[float], AnyTiling]] = []
    at_once = 2 * (os.cpu_count() or 1)
    for begin in range(0, len(each), at_once):
        if time.perf_counter() > end:
            break
        some = each[begin : begin + at_once]
        compile_side_by_side(lambda some=some: [work(of[0]) for _, work in some for of in sets])
        for tiling, work in some:
            if not found or time.perf_counter() < end:
                found.append(([timed(work, of) for of in sets], tiling))
    return found


def rows_of(
    name: str, shape: Shape, clients: Sequence[int], samples: int, found: list[tuple[list[float], AnyTiling]]
) -> Iterator[dict[str, Any]]:
    """The choice first, and the fastest of the others."""
    for place, count in enumerate(clients):
        fastest = sorted(found[1:], key=lambda one: one[0][place])[:KEPT]
        for times, tiling in [found[0], *fastest]:
            known = name, shape, count, samples, round(times[place], 4), tiling is found[0][1], len(found)
            yield dict(zip(COLUMNS, (*known, *_numbers(tiling)), strict=True))


def main() -> None:
    """Write the chosen and the fastest tilings of every layer and product."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--budget", type=float, default=100.0, help="seconds, in all")
    parser.add_argument("--channels", type=int, nargs="+", default=[16, 32, 64], help="of the layers that are tried")
    parser.add_argument("--tokens", action="store_true", help="layers of a vision transformer, for 10 and 100 clients")
    parser.add_argument("--clients", type=int, nargs="+")
    parser.add_argument("--samples", type=int, default=50)
    options = parser.parse_args()
    end = time.perf_counter() + options.budget
    clients = options.clients or ([10, 100] if options.tokens else [10])
    written = options.out.open("w", buffering=1) if options.out else sys.stdout
    rows = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    rows.writeheader()
    known = [shape for shape in CONVOLUTIONS if shape.image.channels in options.channels]
    shapes = TOKENS if options.tokens else sorted(known, key=lambda shape: (shape.stride, shape.image.channels))
    for number, shape in enumerate(shapes):
        generator = torch.Generator("cuda").manual_seed(SEED)
        sets = [
            [operands(shape, count, options.samples, torch.bfloat16, generator) for _ in range(COPIES)]
            for count in clients
        ]
        for place, (name, each) in enumerate(trials(shape)):
            left = 3 * (len(shapes) - number) - place
            found = tried(each, sets, time.perf_counter() + (end - time.perf_counter()) / left)
            rows.writerows(rows_of(name, shape, clients, options.samples, found) if found else ())


if __name__ == "__main__":
    main()
