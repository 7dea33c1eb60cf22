"""Which block sizes are fastest for a convolution's products: `python speed/tilings.py --out FILE.csv`.

What `fedade.kernels.tilings` chooses comes first of every layer and product, then the fastest others that were tried.
"""

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import torch
from speed.judging import SHAPES
from speed.kernels import COPIES, SEED, Operands, Shape, milliseconds, operands

from fedade.kernels import compile_side_by_side
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
COLUMNS = ("product", "shape", "clients", "samples", "milliseconds", "chosen", *FIELDS)
Trial = tuple[Tiling | SplitTiling, Callable[[Operands], object]]


def tilings(least: int, step: int, channels: int, output_channels: int) -> Iterator[Tiling]:
    """Worth trying for a product with so many channels of its source and its output."""
    for columns, groups, depth, (warps, stages) in product(
        (1, 2, 4, 8), (64, 128, 256), (32, 64), ((4, 3), (4, 4), (8, 3))
    ):
        outputs, breadth = step * columns, power_of_two(step * columns * output_channels)
        small = breadth <= 128 or columns == 1
        if small and groups * min(128, breadth) >= least and depth <= power_of_two((columns + 2) * channels):
            yield Tiling(outputs, groups, min(128, breadth), depth, warps, stages)


def trials(shape: Shape) -> Iterator[tuple[str, list[Trial]]]:
    """By product, what is chosen now and what could be."""
    image, stride, size = shape.image, shape.stride, shape.kernel

    def forward(tiling: Tiling) -> Trial:
        epilogue = lambda of: Epilogue(of.bias, rectified=True)  # noqa: E731
        return tiling, lambda of: convolve(of.images, of.weights, stride, epilogue(of), "float32", tiling)

    def back(tiling: Tiling) -> Trial:
        gated = lambda of: Epilogue(gate=of.images)  # noqa: E731
        return tiling, lambda of: input_gradient(of.gradient, of.weights, image, stride, gated(of), "float32", tiling)

    def of_weights(tiling: SplitTiling) -> Trial:
        return tiling, lambda of: weight_gradient(of.images, of.gradient, size, stride, "float32", tiling)

    chosen = product_tiling(image.channels, shape.outputs, stride, 2)
    yield "forward", [forward(chosen), *map(forward, tilings(4096, 1, image.channels, shape.outputs))]
    chosen = input_gradient_tiling(shape.outputs, image.channels, stride, 2)
    yield "input", [back(chosen), *map(back, tilings(4096, stride, shape.outputs, image.channels))]
    now = weight_gradient_tiling(image.channels, shape.outputs, stride, 2)
    others = [
        replace(now, block=replace(now.block, groups=groups, warps=warps, stages=stages), programs=programs)
        for groups, (warps, stages), programs in product((32, 64, 128), ((4, 3), (4, 4), (8, 3)), (132, 264))
    ]
    yield "weights", [of_weights(now), *map(of_weights, others)]


def timed(work: Callable[[Operands], object], sets: list[Operands]) -> float:
    """Milliseconds; endless for what does not fit."""
    try:
        return milliseconds(lambda copy: work(sets[copy]), repeats=10)
    except Exception:  # noqa: BLE001 - too many registers, or too much shared memory
        torch.cuda.synchronize()
        return float("inf")


def main() -> None:
    """Write the chosen and the fastest tilings of every layer and product."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--budget", type=float, default=100.0, help="seconds, in all")
    parser.add_argument("--channels", type=int, nargs="+", default=[16, 32, 64], help="of the layers that are tried")
    for word, default in (("clients", 10), ("samples", 50)):
        parser.add_argument(f"--{word}", type=int, default=default)
    options = parser.parse_args()
    end = time.perf_counter() + options.budget
    written = options.out.open("w", buffering=1) if options.out else sys.stdout
    rows = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    rows.writeheader()
    shapes = [shape for shape in SHAPES if shape.image.channels in options.channels and shape.kernel == 3]
    for shape in sorted(shapes, key=lambda shape: (shape.stride, shape.image.channels)):
        if time.perf_counter() > end:
            break
        generator = torch.Generator("cuda").manual_seed(SEED)
        sets = [operands(shape, options.clients, options.samples, torch.bfloat16, generator) for _ in range(COPIES)]
        tried = dict(trials(shape))
        works = [work for each in tried.values() for _, work in each]
        compile_side_by_side(lambda works=works, sets=sets: [work(sets[0]) for work in works])
        for name, each in tried.items():
            times = [(timed(work, sets), place, tiling) for place, (tiling, work) in enumerate(each)]
            for took, place, tiling in [times[0], *sorted(times[1:], key=lambda one: one[0])[:KEPT]]:
                block = tiling.block if isinstance(tiling, SplitTiling) else tiling
                row = dict(zip(COLUMNS, (name, shape, options.clients, options.samples, round(took, 4)), strict=False))
                rows.writerow(row | {"chosen": place == 0} | {key: asdict(block)[key] for key in FIELDS})


if __name__ == "__main__":
    main()
