"""The forms of what a method exchanges, found by rehearsing one round on a few reference samples."""

from dataclasses import dataclass, replace

import torch

from fedade.core import tree
from fedade.core.context import ClientContext, RoundContext, Truth, context_before_first_batch
from fedade.core.deployment import Deployment, Reference
from fedade.core.method import Method, Plan, with_rounds
from fedade.core.tree import Tree
from fedade.flower.wire import NUMBER_BYTES

SAMPLES = 8
NAME_BYTES = 512
"""Enough for a tensor's name, type and shape."""
ROOM = 2**16
"""For all else that an answer tells."""


@dataclass(frozen=True)
class Forms:
    """Trees of the structure, shapes and types of what is exchanged; their values mean nothing."""

    plan: Plan
    """What a client decides in a timestep, and may tell of it."""
    uplink: Tree = ()
    """What a participant sends."""
    downlink: Tree = ()
    """What it alone is told."""


def most_bytes_of(forms: Forms) -> int:
    """Most bytes that an honest answer can hold: its update, its row, and room for the names of both."""
    leaves = len(tree.leaves(forms.uplink)) + len(forms.plan)
    numbers = sum(value.numel() for value in forms.plan.values())
    return tree.num_bytes(forms.uplink) + NUMBER_BYTES * numbers + NAME_BYTES * leaves + ROOM


@torch.no_grad()
def rehearse(method: Method, deployment: Deployment) -> Forms:
    """One timestep of one client with one round, if there are rounds, on a reference set cut short to be quick."""
    few = Reference(*(part[:SAMPLES] for part in deployment.reference))
    short, federated = replace(deployment, reference=few), with_rounds(method)
    shared = {} if federated is None else federated.begin_server(short)
    truth = Truth(few.labels, deployment.source_prior) if method.card.oracle else None
    state = method.begin(context_before_first_batch(short))
    known = (short, few.inputs, torch.tensor(1), torch.tensor(0), shared, truth)
    state, plan = method.observe(ClientContext(*known), state)
    if federated is None:
        return Forms(plan)
    _, plan, uplink = federated.local_round(RoundContext(*known), state, plan)
    _, downlinks = federated.aggregate(short, shared, tree.stack([uplink]), torch.tensor([float(len(few.inputs))]))
    return Forms(plan, uplink, tree.take(downlinks, 0))
