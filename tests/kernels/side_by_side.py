"""Goes through a network's pass and gradients for a GPU that is not there: `python -m tests.kernels.side_by_side`.

Prints how many launches of another kind there were, how many kernels Triton has of them, and what failed.
"""

from itertools import chain
from typing import Any

import torch
import triton
from torch import Tensor
from torch.func import grad, vmap
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from fedade.kernels import Affine, compiling, folding_lanes, products, reductions, row_products
from fedade.kernels.lanes import fused_layers
from fedade.kernels.layer import Layer
from fedade.kernels.measured_lanes import measured_layer

LAYERS = (Layer(0), Layer(1, stride=2), Layer(2, relu=False, gelu=True), Layer(3, relu=False, residual=2))
MEASURED = (16, 32, 128)
"""Channels of convolutions that leave moments: of rows and of blocks."""
KERNELS = ((16, 3, 3, 3), (32, 16, 3, 3), (64, 32, 1, 1), (32, 64, 1, 1))


class Hopper:
    """What Triton asks of a driver in order to compile."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def loss(weights: list[Tensor], images: Tensor) -> Tensor:
    of_outputs = [weight.new_ones(len(weight)) for weight in weights]
    affines = [Affine(*[ones] * 4, 1e-5) for ones in of_outputs]
    return fused_layers(LAYERS, [images], weights, of_outputs, "float32", affines).mean((2, 3)).square().sum()


def main() -> None:
    driver.set_active(Hopper())
    images = torch.ones(2, 3, 3, 8, 8, dtype=torch.bfloat16)
    weights = [torch.ones(2, *shape) for shape in KERNELS]
    with compiling.instead_of_running() as compiler:
        for _ in range(2):
            found: Any = vmap(grad(loss))(weights, images)
            for channels in MEASURED:
                pixels = torch.ones(2, 3, channels, 16, 16, dtype=torch.bfloat16)
                own = torch.ones(2, channels, channels, 3, 3)
                vmap(lambda image, weight: measured_layer(Layer(0, relu=False), image, weight, None, "float32"))(
                    pixels, own
                )
    assert not any(gradient.any() for gradient in found)
    failures = [error for future in compiler.begun.values() if (error := future.exception())]
    values = chain(*(vars(module).values() for module in (products, row_products, folding_lanes, reductions)))
    kernels = [kernel for kernel in values if isinstance(kernel, triton.JITFunction)]
    print(len(compiler.begun), sum(len(kernel.device_caches[0][0]) for kernel in kernels), failures)  # noqa: T201


if __name__ == "__main__":
    main()
