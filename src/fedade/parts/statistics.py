"""Running normalisation statistics that a client keeps for itself."""

import warnings
from typing import Literal

from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.normalisation import FROZEN, Frozen, Mixed, RecordingStatistics, Statistics
from fedade.core.split import Parameters

NormalisationMode = Literal["frozen", "batch", "mix", "ema"]
"""Deployed statistics; the batch's own; a mix of the two; a running average that follows the stream."""


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


def follow(parameters: Parameters, seen: dict[str, Statistics], momentum: float) -> dict[str, Tensor]:
    """Those running statistics among the parameters, after one pass, as BatchNorm moves them in training mode.

    The batch's variance is taken as it is; PyTorch scales it by n / (n - 1), which hardly matters for images.
    """
    batch = {
        f"{layer}.{name}": value
        for layer, statistics in seen.items()
        for name, value in (("running_mean", statistics.mean), ("running_var", statistics.variance))
    }
    return {
        name: (1 - momentum) * parameters[name] + momentum * value.detach()
        for name, value in batch.items()
        if name in parameters
    }


def follow_stream(
    deployment: Deployment, parameters: Parameters, own: Parameters, inputs: Tensor, momentum: float
) -> dict[str, Tensor]:
    """A client's own layers, with statistics that moved towards those of a batch."""
    recording = RecordingStatistics()
    deployment.network.represent(parameters, inputs, recording)
    return {**own, **follow(own, recording.seen, momentum)}
