"""Residual blocks, the common stock of the convolutional networks here."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedade.core.normalisation import current_pass
from fedade.kernels import convolved
from fedade.models.batch_norm import BatchNorm, applied
from fedade.models.convolving import Chain, Layers, leading_convolution, statistics_are_fixed


class Convolution(nn.Conv2d):
    """A convolution without bias that keeps the size, up to its stride, in the precision in force."""

    def forward(self, inputs: Tensor) -> Tensor:
        precision = current_pass().precision
        if self.training and precision != "bf16":
            return super().forward(inputs)
        images = inputs.to(torch.bfloat16) if precision == "bf16" else inputs
        return convolved(images, self.weight, self.stride[0], tf32=precision == "tf32")


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> Convolution:
    return Convolution(inputs, outputs, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al., 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = convolution(inputs, outputs, stride=stride)
        self.norm1 = BatchNorm(outputs)
        self.conv2 = convolution(outputs, outputs)
        self.norm2 = BatchNorm(outputs)
        self.shortcut: nn.Module = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else Layers(convolution(inputs, outputs, 1, stride), BatchNorm(outputs))
        )

    def forward(self, inputs: Tensor) -> Tensor:
        if statistics_are_fixed(self):
            chain = Chain(inputs)
            self.join(chain, 0)
            return chain.run()
        if self.training:
            hidden = F.relu(self.norm1(self.conv1(inputs)))
            return F.relu(self.norm2(self.conv2(hidden)) + self.shortcut(inputs))
        hidden = self.conv1(inputs)
        hidden = self.conv2(applied(hidden, self.norm1.affine(hidden), relu=True))
        # Statistics are asked for in the order in which layers are usually run: the shortcut's come last.
        return applied(hidden, self.norm2.affine(hidden), self.shortcut(inputs), relu=True)

    def join(self, chain: Chain, source: int) -> int:
        hidden = chain.append(self.conv1, self.norm1, source)
        projection = leading_convolution(list(self.shortcut.children()))
        shortcut = source if projection is None else chain.append(*projection[:2], source, relu=False)
        return chain.append(self.conv2, self.norm2, hidden, shortcut)
