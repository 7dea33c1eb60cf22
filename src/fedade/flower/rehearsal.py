"""The forms of what a method exchanges, found by rehearsing one round on a few reference samples."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from fedade.core import tree
from fedade.core.deployment import Deployment, Reference
from fedade.core.method import FederatedMethod, Method, Observation, OracleObservation
from fedade.core.tree import Tree

SAMPLES = 8


@dataclass(frozen=True)
class Forms:
    """Trees of the structure, shapes and types that a participant sends and is told; their values mean nothing."""

    uplink: Tree
    downlink: Tree


@torch.no_grad()
def rehearse(method: FederatedMethod, deployment: Deployment) -> Forms:
    """One round of one client, on a reference set that is cut short to be quick."""
    few = Reference(*(part[:SAMPLES] for part in deployment.reference))
    short = replace(deployment, reference=few)
    key = torch.tensor(0)
    seen = observation(method, few.inputs, 1, 0, few.labels, deployment.source_prior)
    server = method.init_server(short)
    client, plan = method.observe(short, method.init_client(short), server, seen)
    _, _, uplink = method.local_round(short, client, plan, server, seen, key)
    _, downlinks = method.aggregate(short, server, tree.stack([uplink]), torch.tensor([float(len(few.inputs))]))
    return Forms(uplink, tree.take(downlinks, 0))


def observation(
    method: Method,
    inputs: torch.Tensor,
    timestep: int,
    key: int,
    labels: torch.Tensor | None = None,
    prior: torch.Tensor | None = None,
) -> Any:
    """What a method may see of a batch."""
    time, number = torch.tensor(timestep), torch.tensor(key)
    if method.card.oracle:
        if labels is None or prior is None:
            raise ValueError("an oracle needs labels and priors")
        return OracleObservation(inputs, time, number, labels, prior)
    return Observation(inputs, time, number)
