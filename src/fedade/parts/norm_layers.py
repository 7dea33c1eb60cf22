"""Normalisation layers at test time: their running statistics, their scales and shifts, and steps on these."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.core.method import ClientContext, Deployment, Plan
from fedade.core.normalisation import FROZEN, Frozen, Mixed, RecordingStatistics, Statistics, blended
from fedade.core.split import Layout, Parameters
from fedade.core.tree import choose
from fedade.parts.composition import trainable
from fedade.parts.optimisers import Learner, Optimiser
from fedade.parts.rates import constant_rate

NormalisationMode = Literal["frozen", "batch", "mix", "ema"]
"""Deployed statistics; the batch's own; a mix of the two; a running average that follows the stream."""
FOUR_STAGES = 4
"""Of the networks for ImageNet, the last of which SAR's released code leaves alone."""


def batch_logits(deployment: Deployment, own: Parameters, inputs: Tensor) -> Tensor:
    """Logits of the deployed model with a client's own layers, normalised by the statistics of the batch itself."""
    return deployment.network.logits({**deployment.parameters, **own}, inputs, Mixed(1.0))


def own_batch_logits(ctx: ClientContext, own: Parameters) -> Tensor:
    """Logits of a context's batch under its own statistics, with the layers of the state that comes with it."""
    model = {**ctx.deployment.parameters, **own}
    return ctx.deployment.network.classify(model, ctx.own_features(model, Mixed(1.0)))


def norm_affine(deployment: Deployment, method: str, include_last_stage: bool = True) -> dict[str, Tensor]:
    """Scales and shifts as deployed: of BatchNorm, LayerNorm, GroupNorm or RMSNorm, whatever the model has."""
    layers = _norm_layers(deployment)
    if not include_last_stage:
        layers = layers[: len(layers) - _of_last_stage([next(iter(layer.values())).numel() for layer in layers])]
    if not layers:
        raise FedadeError(
            f"{method}: model {deployment.network.name!r} has no normalisation layer to adapt; "
            "choose a model that has some, such as small-cnn, or a method that needs none, such as source"
        )
    return {name: value for layer in layers for name, value in layer.items()}


def _of_last_stage(widths: Sequence[int]) -> int:
    """How many layers SAR's released code leaves alone: those of a fourth stage, and the last quarter of a transformer,
    whose layers are equally wide. Smaller networks, such as the ResNets for CIFAR, have no such stage."""
    stages = [len(list(alike)) for _, alike in groupby(widths)]
    return len(widths) // 4 if len(stages) == 1 else stages[-1] if len(stages) >= FOUR_STAGES else 0


def adaptable(deployment: Deployment) -> dict[str, Tensor]:
    """All that gradient steps may move, and normalisation scales and shifts also where training leaves them alone."""
    return trainable(deployment) | {name: value for layer in _norm_layers(deployment) for name, value in layer.items()}


def _norm_layers(deployment: Deployment) -> list[dict[str, Tensor]]:
    """Scale and shift of each layer, in the network's order; by the name of its class: libraries bring their own."""
    network, parameters = deployment.network, deployment.parameters
    layers = [
        {name: parameters[name] for name in (f"{part}.{layer}.weight", f"{part}.{layer}.bias") if name in parameters}
        for part, modules in (("body", network.body), ("head", network.head))
        for layer, module in modules.named_modules()
        if "norm" in type(module).__name__.lower()
    ]
    return [layer for layer in layers if layer]


def evaluation(mode: NormalisationMode, mix_weight: float) -> Frozen | Mixed:
    """The strategy of a pass. With `ema` the statistics in the parameters are the running ones already."""
    mixes: dict[str, Frozen | Mixed] = {"batch": Mixed(1.0), "mix": Mixed(mix_weight)}
    return mixes.get(mode, FROZEN)


def statistics_names(deployment: Deployment) -> tuple[str, ...]:
    """Running means and variances: of BatchNorm layers, the only ones that have any."""
    return tuple(name for name in deployment.parameters if name.endswith((".running_mean", ".running_var")))


def warn_without_batch_norm(deployment: Deployment, method: str, instead: str) -> None:
    """Say once that a method made for BatchNorm meets a model without, and what it does there."""
    if not statistics_names(deployment):
        warnings.warn(
            f"{method}: model {deployment.network.name!r} has no BatchNorm layer, for which it was made; {instead}",
            RuntimeWarning,
            stacklevel=3,
        )


def named_statistics(statistics: Mapping[str, Statistics]) -> dict[str, Tensor]:
    """Statistics by the names of the tensors that they replace in a model."""
    return {
        f"{layer}.{name}": value
        for layer, (mean, variance) in statistics.items()
        for name, value in (("running_mean", mean), ("running_var", variance))
    }


def follow(parameters: Parameters, seen: dict[str, Statistics], momentum: float) -> dict[str, Tensor]:
    """Those running statistics among the parameters, after one pass, as BatchNorm moves them in training mode. The
    batch's variance is taken as it is; PyTorch scales it by n / (n - 1), which hardly matters for images."""
    return {
        name: blended(parameters[name], value.detach(), momentum)
        for name, value in named_statistics(seen).items()
        if name in parameters
    }


def follow_stream(
    deployment: Deployment, parameters: Parameters, own: Parameters, inputs: Tensor, momentum: float
) -> dict[str, Tensor]:
    """A client's own layers, with statistics that moved towards those of a batch."""
    recording = RecordingStatistics()
    deployment.network.represent(parameters, inputs, recording)
    return {**own, **follow(own, recording.seen, momentum)}


def norm_learner(deployment: Deployment, method: str, optimiser: Optimiser, include_last_stage: bool = True) -> Learner:
    """The deployed scales and shifts before a method's first step; it warns where there is no BatchNorm."""
    own = norm_affine(deployment, method, include_last_stage)
    warn_without_batch_norm(deployment, method, "it moves the scales of the norms that the model has")
    return Learner(own, optimiser.start(own))


def plan_with_reliable(rate: float, reliable: Tensor, like: Tensor) -> Plan:
    """A plan of a fixed rate, with the share of samples `[n]` that a step has used."""
    share = reliable.to(like.dtype).mean()
    return {"learning_rate": constant_rate(rate, share), "reliable": share}


def masked_mean(values: Tensor, wanted: Tensor) -> Tensor:
    """Mean of the wanted values; 0 where there is none."""
    return torch.where(wanted, values, 0.0).sum() / wanted.sum().clamp_min(1)


def moved(
    learner: Learner, slopes: dict[str, Tensor], optimiser: Optimiser, rate: float, wanted: Tensor | None = None
) -> Learner:
    """A learner after one step along known slopes; as it was where no step is wanted."""
    layout = Layout.by_name(learner.own)
    vector = layout.join(learner.own)
    direction, state = optimiser.direction(vector, layout.join(slopes), learner.state)
    own = layout.named(vector - rate * direction)
    after = Learner({name: own[name] for name in learner.own}, state)
    return after if wanted is None else Learner(*choose(wanted, after, learner))
