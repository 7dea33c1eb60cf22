"""Batch normalisation whose statistics are chosen by a strategy, as plain arithmetic that `vmap` can batch."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from fedade.core.normalisation import Statistics
from fedade.core.pass_context import current_pass
from fedade.kernels import Affine


class BatchNorm(nn.Module):
    """Drop-in for `nn.BatchNorm1d/2d/3d` with the same tensor names.

    While training it is PyTorch's own. Otherwise the strategy of the current pass (`fedade.core.normalisation`) says
    which statistics to use, and nothing is ever written.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.eps = eps
        self.momentum = momentum
        self.layer = ""
        """Its name in the network, by which strategies know it; set by `name_batch_norms`."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise `[n, channels, ...]` per channel."""
        if self.training:
            return F.batch_norm(
                inputs,
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                True,
                self.momentum,
                self.eps,
            )
        deployed = Statistics(self.running_mean, self.running_var)
        mean, variance = current_pass().normalisation.statistics(self.layer, inputs, deployed)
        affine = Affine(self.weight, self.bias, mean, variance, self.eps)
        scale, shift = (value.to(inputs.dtype) for value in affine.combined())
        trailing = (...,) + (None,) * (inputs.ndim - 2)
        return inputs * scale[trailing] + shift[trailing]


def convert_batch_norms(module: nn.Module) -> nn.Module:
    """Replace PyTorch's batch normalisation layers of a module by ours, keeping their tensors."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            ours = BatchNorm(child.num_features, child.eps, child.momentum or 0.1)
            ours.load_state_dict(
                {key: value for key, value in child.state_dict().items() if key != "num_batches_tracked"},
                strict=False,  # layers without affine parameters keep 1 and 0
            )
            setattr(module, name, ours.to(child.running_mean))
        else:
            convert_batch_norms(child)
    return module


def name_batch_norms(module: nn.Module, prefix: str) -> None:
    """Tell every layer its own name."""
    for name, child in module.named_modules():
        if isinstance(child, BatchNorm):
            child.layer = f"{prefix}.{name}"
