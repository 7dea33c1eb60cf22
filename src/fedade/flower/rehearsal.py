"""The forms of what a method exchanges, found by rehearsing one round on a few reference samples."""

from dataclasses import dataclass, replace

import torch

from fedade.core import tree
from fedade.core.context import ClientContext, RoundContext, Truth, context_before_first_batch
from fedade.core.deployment import Deployment, Reference
from fedade.core.method import FederatedMethod
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
    known = (short, few.inputs, torch.tensor(1), torch.tensor(0), shared, truth)
    state, plan = method.observe(ClientContext(*known), state)
    _, _, uplink = method.local_round(RoundContext(*known), state, plan)
    _, downlinks = method.aggregate(short, shared, tree.stack([uplink]), torch.tensor([float(len(few.inputs))]))
    return Forms(uplink, tree.take(downlinks, 0))
