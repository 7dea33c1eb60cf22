"""Batch normalisation whose statistics are chosen by a strategy, as plain arithmetic that `vmap` can batch."""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedade.core.errors import FedadeError
from fedade.core.normalisation import ByMoments, BySampleMoments, InputMoments, SampleMoments, Statistics, current_pass
from fedade.kernels import Affine, measured, normalised, runs_fused


class BatchNorm(nn.Module):
    """Drop-in for `nn.BatchNorm1d/2d/3d` with the same tensor names. While training it is PyTorch's own. Otherwise the
    strategy of the current pass (`fedade.core.normalisation`) says which statistics to use, and nothing is ever
    written."""

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
        if self.training:
            return F.batch_norm(
                inputs, self.running_mean, self.running_var, self.weight, self.bias, True, self.momentum, self.eps
            )
        return applied(*self.begun(inputs))

    def deployed(self) -> Affine:
        """What it does with the statistics that it was deployed with."""
        return Affine(self.weight, self.bias, self.running_mean, self.running_var, self.eps)

    def begun(self, inputs: Tensor, sample_moments: Tensor | None = None) -> tuple[Tensor, Affine]:
        """The inputs, to be read instead of those given, and what is done to them in this pass; asks the strategy,
        which is told their moments if they are known and all that it wants."""
        deployed = Statistics(self.running_mean, self.running_var)
        strategy = current_pass().normalisation
        if isinstance(strategy, BySampleMoments) and sample_moments is not None:
            statistics = strategy.statistics(self.layer, SampleMoments(sample_moments), deployed)
        elif isinstance(strategy, ByMoments) and inputs.ndim == 4 and runs_fused(inputs):
            inputs, mean, variance = measured(inputs, whole=not strategy.of_samples)
            moments = InputMoments(mean, variance, len(inputs), inputs[0, 0].numel())
            statistics = strategy.statistics(self.layer, moments, deployed)
        else:
            statistics = strategy.statistics(self.layer, inputs, deployed)
        return inputs, Affine(self.weight, self.bias, *statistics, self.eps)


def applied(inputs: Tensor, affine: Affine, residual: Tensor | None = None, relu: bool = False) -> Tensor:
    if inputs.ndim == 4:
        return normalised(inputs, affine, residual, relu)
    scale, shift = (value.to(inputs.dtype) for value in affine.combined())
    trailing = (...,) + (None,) * (inputs.ndim - 2)
    result = inputs * scale[trailing] + shift[trailing]
    result = result if residual is None else result + residual
    return F.relu(result) if relu else result


def convert_batch_norms(module: nn.Module) -> nn.Module:
    """Replace batch normalisation layers of a module by ours, keeping their tensors. PyTorch's own, their frozen forms
    (`FrozenBatchNorm2d`), and timm's, which end in dropout and an activation. Layers without running statistics, and
    others that only derive from PyTorch's, stay as they are."""
    for name, child in module.named_children():
        ours = _converted(child)
        if ours is None:
            convert_batch_norms(child)
        else:
            setattr(module, name, ours)
    return module


def refuse_hooked_batch_norms(module: nn.Module) -> None:
    """Hooks of a layer that is replaced would never run."""
    for name, layer in module.named_modules():
        if (layer._forward_hooks or layer._forward_pre_hooks) and _is_replaced(layer):
            raise FedadeError(
                f"{name or 'the model'} is a {type(layer).__name__} with a forward hook, and is replaced to adapt its "
                "statistics; remove the hook, and do what it does in the forward() of the module around it"
            )


def _converted(layer: nn.Module) -> nn.Module | None:
    """The layer as ours; None where it is none that we can replace."""
    if not _is_replaced(layer):
        return None
    mean: Any = layer.running_mean
    tensors = layer.state_dict()
    ours = BatchNorm(len(mean), float(getattr(layer, "eps", 1e-5)), getattr(layer, "momentum", None) or 0.1)
    # Layers without affine parameters keep 1 and 0.
    ours.load_state_dict({key: tensors[key] for key in ours.state_dict() if key in tensors}, strict=False)
    ours = ours.to(mean)
    return nn.Sequential(ours, layer.drop, layer.act) if _acts(layer) else ours  # type: ignore[arg-type]


def _is_replaced(layer: nn.Module) -> bool:
    plain = isinstance(layer, _BatchNorm) and type(layer).forward in (_BatchNorm.forward, nn.SyncBatchNorm.forward)
    frozen = type(layer).__name__.startswith("FrozenBatchNorm")
    return getattr(layer, "running_mean", None) is not None and (plain or frozen or _acts(layer))


def _acts(layer: nn.Module) -> bool:
    """Whether it is timm's."""
    followed = [getattr(layer, name, None) for name in ("drop", "act")]
    named = isinstance(layer, _BatchNorm) and type(layer).__name__.startswith("BatchNormAct")
    return named and all(isinstance(part, nn.Module) for part in followed)


def rigid_batch_norms(module: nn.Module) -> list[str]:
    """Names of layers whose running statistics no strategy reaches, in a module that was converted: of TorchScript, or
    of a class of their own."""
    named = module.named_modules()
    return [name for name, part in named if _runs(part) and not isinstance(part, BatchNorm)]


def _runs(layer: nn.Module) -> bool:
    return isinstance(getattr(layer, "running_mean", None), Tensor)


def name_batch_norms(module: nn.Module, prefix: str) -> None:
    for name, child in module.named_modules():
        if isinstance(child, BatchNorm):
            child.layer = f"{prefix}.{name}"
