"""A convolution whose windows lie side by side, as a vision transformer's first layer: a product with every patch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from fedade.core.normalisation import current_pass
from fedade.kernels import Layer, fused_layers, runs_fused
from fedade.models.fused_steps import in_precision
from fedade.models.recognising import CHANNEL_MULTIPLE


@dataclass(frozen=True)
class PatchProduct:
    """Its result lies in memory by pixel, so that tokens are made of it without a copy."""

    output: fx.Node

    def reads(self) -> list[fx.Node]:
        return self.output.all_input_nodes

    def weight(self, module: nn.Module) -> Tensor:
        """As that of a 1x1 convolution."""
        part: Any = module.get_submodule(str(self.output.target))
        weight: Tensor = part.weight
        return weight.flatten(1)[:, :, None, None]

    def run(self, module: nn.Module, values: dict[fx.Node, Any], packed: Mapping[fx.Node, Tensor]) -> Tensor:
        """`packed` has the weight in the precision of the pass."""
        part: Any = module.get_submodule(str(self.output.target))
        images, precision = values[self.reads()[0]], current_pass().precision
        if not runs_fused(images):
            with in_precision():
                result: Tensor = part(images)
                return result
        size = part.kernel_size[0]
        (count, channels, height, width), weight = images.shape, self.weight(module)
        rows, columns = height // size, width // size
        whole = images[:, :, : rows * size, : columns * size].reshape(count, channels, rows, size, columns, size)
        patches = whole.permute(0, 2, 4, 1, 3, 5).to(
            torch.bfloat16 if precision == "bf16" else images.dtype, memory_format=torch.contiguous_format
        )
        shown = patches.reshape(count, 1, rows * columns, -1).permute(0, 3, 1, 2)
        ready = [copy for copy in (packed.get(self.output),) if copy is not None and copy.dtype is shown.dtype]
        layers = [Layer(0, relu=False)]
        result = fused_layers(layers, [shown], [weight], [part.bias], tf32=precision == "tf32", packed=ready)
        return result.reshape(count, len(weight), rows, columns)


def is_patch_product(node: fx.Node, module: nn.Module) -> bool:
    """Whether a node is a convolution without padding whose windows neither overlap nor leave gaps."""
    part = module.get_submodule(str(node.target)) if node.op == "call_module" and len(node.args) == 1 else None
    if not isinstance(part, nn.Conv2d) or type(part).forward is not nn.Conv2d.forward:
        return False
    size, numbers = part.kernel_size[0], part.weight[0].numel()
    plain = part.padding in ((0, 0), "valid") and part.dilation == (1, 1) and part.groups == 1
    square = part.kernel_size == part.stride == (size, size)
    return plain and square and not (numbers % CHANNEL_MULTIPLE or part.out_channels % CHANNEL_MULTIPLE)
