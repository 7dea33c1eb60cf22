"""3x3 convolutions that walk down rows beside those by blocks, on a GPU: `python speed/walking.py --out FILE.csv`.

In bf16, with what follows a layer (bias, residual, relu) or comes before it (gate). Milliseconds of both, by how far a
program walks.
"""

import argparse
import csv
import sys
from functools import partial
from pathlib import Path

import torch
from speed.kernels import COPIES, SEED, Operands, Shape, milliseconds, operands

from fedade.kernels import compile_side_by_side, row_products
from fedade.kernels.geometry import Image
from fedade.kernels.launch import Epilogue, convolve, input_gradient
from fedade.kernels.row_products import Walk
from fedade.kernels.tilings import Tiling, input_gradient_tiling, product_tiling

SHAPES = (Shape(Image(32, 32, 16), 16), Shape(Image(32, 32, 32), 32), Shape(Image(16, 16, 32), 32))
CLIENTS = ((10, 50), (100, 50), (1, 5000))
"""With weights of their own, and samples of each."""
ROWS = (8, 16, 32)
COLUMNS = ("product", "shape", "clients", "samples", "rows", "milliseconds")
BLOCKS = "blocks"


def worked(product: str, shape: Shape, cut: Tiling | Walk, of: Operands) -> object:
    if product == "forward":
        return convolve(of.images, of.weights, 1, Epilogue(of.bias, of.gradient, rectified=True), "float32", cut)
    return input_gradient(of.gradient, of.weights, shape.image, 1, Epilogue(gate=of.images), "float32", cut)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = csv.writer(options.out.open("w", buffering=1) if options.out else sys.stdout, lineterminator="\n")
    rows.writerow(COLUMNS)
    for shape in SHAPES:
        channels, outputs = shape.image.channels, shape.outputs
        blocks = {
            "forward": product_tiling(channels, outputs, 1, 2),
            "input": input_gradient_tiling(outputs, channels, 1, 2),
        }
        for clients, samples in CLIENTS:
            generator = torch.Generator("cuda").manual_seed(SEED)
            sets = [operands(shape, clients, samples, torch.bfloat16, generator) for _ in range(COPIES)]
            for product, tiling in blocks.items():
                for how in (BLOCKS, *ROWS):
                    if isinstance(how, int):
                        row_products.ROWS = row_products.MOST_ROWS = how
                    cut = tiling if how == BLOCKS else Walk()
                    work = partial(worked, product, shape, cut)
                    compile_side_by_side(partial(work, sets[0]))
                    took = milliseconds(lambda copy, work=work, sets=sets: work(sets[copy]))
                    rows.writerow((product, shape, clients, samples, how, round(took, 4)))


if __name__ == "__main__":
    main()
