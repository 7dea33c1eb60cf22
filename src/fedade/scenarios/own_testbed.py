"""A deployment and streams of the user's own, as a testbed that the runner takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedade.core.deployment import Deployment, Reference
from fedade.core.errors import FedadeError
from fedade.core.identity import digest, tensor_bytes
from fedade.core.scenario import Batch, Scenario, Streams
from fedade.scenarios.settings import ScenarioSettings

OWN_STREAMS = "own streams"
"""What stands for the dataset where there is none."""
StreamsOfSeed = Callable[[int], Streams]


@dataclass(frozen=True)
class OwnTestbed:
    """What scenarios of all seeds have in common: a deployment; and the streams of each seed."""

    deployment: Deployment
    streams: StreamsOfSeed
    identity: Mapping[str, str]

    @property
    def held_out(self) -> Reference:
        return self.deployment.reference

    def scenario(self, _schedule: str, seed: int) -> Scenario:
        return Scenario(self.deployment, self.streams(seed))


def own_testbed(
    deployment: Deployment, streams: Streams | StreamsOfSeed, seed: int
) -> tuple[OwnTestbed, ScenarioSettings]:
    """A testbed, and the settings that tell what it is; streams that do not fit the deployment are refused. The data
    are known by the first and last batch of every client with the given seed."""
    made: StreamsOfSeed = streams if callable(streams) else lambda _: streams
    drawn = made(seed)
    if not all(hasattr(drawn, name) for name in ("num_clients", "num_timesteps", "draw")):
        raise FedadeError(
            f"streams are a {type(drawn).__name__}; pass fedade.drifting_streams(inputs, labels), your own "
            "(fedade.Streams), or a function from a seed to them"
        )
    first, last = (drawn.draw(np.arange(drawn.num_clients), timestep) for timestep in (1, drawn.num_timesteps))
    _check(first, deployment, drawn.num_clients)
    named = [
        dict(zip(("inputs", "labels", "prior", "severity"), batch.tensors, strict=True)) for batch in (first, last)
    ]
    data = digest(*(part for batch in named for part in tensor_bytes(batch)))
    settings = ScenarioSettings(
        dataset=OWN_STREAMS,
        model=deployment.network.name,
        pretraining=None,
        personal=deployment.split.personal,
        num_clients=drawn.num_clients,
        num_timesteps=drawn.num_timesteps,
        samples=first.inputs.shape[1],
        reference="common",
        reference_size=len(deployment.reference.labels),
        weights_digest=deployment.digest,
        data_digest=data,
    )
    return OwnTestbed(deployment, made, {"weights": deployment.digest, "data": data}), settings


def _check(batch: Batch, deployment: Deployment, num_clients: int) -> None:
    if not isinstance(batch, Batch) or not all(isinstance(part, Tensor) for part in batch.tensors):
        raise FedadeError(f"streams draw a {type(batch).__name__}; give a fedade.Batch of tensors")
    sizes = [list(part.shape) for part in (batch.labels, batch.prior, batch.severity)]
    fitting = [[num_clients, batch.inputs.shape[1]], [num_clients, batch.prior.shape[-1]], [num_clients]]
    if sizes != fitting or len(batch.inputs) != num_clients:
        raise FedadeError(
            f"streams draw inputs {list(batch.inputs.shape)}, labels {sizes[0]}, priors {sizes[1]} and severities "
            f"{sizes[2]} for {num_clients} clients; the first axis of each is the clients', see fedade.Batch"
        )
    shape, wanted = tuple(batch.inputs.shape[2:]), tuple(deployment.reference.inputs.shape[1:])
    if shape != wanted:
        raise FedadeError(f"streams hold inputs of shape {list(shape)}, and the deployment takes {list(wanted)}")
    given, taken = batch.inputs.dtype, deployment.reference.inputs.dtype
    # Only integers that fit may differ; nothing converts them on the way.
    if given != taken and (taken.is_floating_point or torch.promote_types(given, taken) != taken):
        raise FedadeError(f"streams hold {given} inputs, and the deployment takes {taken}; convert them")
    if batch.prior.shape[-1] != deployment.num_classes:
        raise FedadeError(
            f"streams have {batch.prior.shape[-1]} classes, and the deployment {deployment.num_classes}; bring data "
            f"with the labels 0 to {deployment.num_classes - 1}"
        )
