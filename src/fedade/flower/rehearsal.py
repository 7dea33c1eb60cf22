"""The forms of what a method exchanges, found by rehearsing one round on a few reference samples."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedade.core import tree
from fedade.core.context import ClientContext, RoundContext, Truth, context_before_first_batch
from fedade.core.deployment import Deployment, Reference
from fedade.core.method import FederatedMethod, Shared
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
    shared = method.begin_server(short)
    truth = Truth(few.labels, deployment.source_prior) if method.card.oracle else None
    state = method.begin(context_before_first_batch(short))
    state, plan = method.observe(client_context(short, few.inputs, 1, 0, shared, truth), state)
    _, _, uplink = method.local_round(round_context(short, few.inputs, 1, 0, shared, truth), state, plan)
    _, downlinks = method.aggregate(short, shared, tree.stack([uplink]), torch.tensor([float(len(few.inputs))]))
    return Forms(uplink, tree.take(downlinks, 0))


def client_context(
    deployment: Deployment, inputs: Tensor, timestep: int, key: int, shared: Shared, truth: Truth | None
) -> ClientContext:
    """What a client's method is given of a batch."""
    return ClientContext(deployment, inputs, torch.tensor(timestep), torch.tensor(key), shared, truth)


def round_context(
    deployment: Deployment,
    inputs: Tensor,
    timestep: int,
    key: int,
    shared: Shared,
    truth: Truth | None,
    downlink: Tree = (),
) -> RoundContext:
    """What a participant's method is given in a round, whose key it is."""
    return RoundContext(deployment, inputs, torch.tensor(timestep), torch.tensor(key), shared, truth, downlink=downlink)
