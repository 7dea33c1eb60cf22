"""What one client does with one batch: check it, observe, exchange if it is a federation of its own, predict.

Functions of tensors alone, the same in all three homes: the simulator maps them over clients (`engine/steps.py`),
`fedade.Adapter` calls them for one, a Flower node between messages.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fedade.core import tree
from fedade.core.context import ClientContext, RoundContext, Truth
from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.method import FederatedMethod, Method, Plan, Shared
from fedade.core.network import PassCounter
from fedade.core.tree import Tree


def refuse_misshapen(inputs: Tensor, like: Tensor, named: str, remedy: str) -> None:
    """Refuse a batch that is empty or whose inputs have another shape than those of the held-out data."""
    if not inputs.ndim or not len(inputs) or inputs.shape[1:] != like.shape[1:]:
        raise FedadeError(
            f"{named} has shape {list(inputs.shape)}, expected {['n', *like.shape[1:]]} with n > 0; {remedy}"
        )


def whole_rows(inputs: Tensor, axes: int = 1) -> Tensor:
    """Which inputs of a batch are numbers throughout, `[n]`; or which of the rows that so many leading axes number."""
    if not inputs.is_floating_point():
        return torch.ones(inputs.shape[:axes], dtype=torch.bool, device=inputs.device)
    return inputs.isfinite().flatten(axes).all(-1)


def client_context(deployment: Deployment, inputs: Tensor, timestep: int, key: int, shared: Shared) -> ClientContext:
    """What a client's method is given of a batch."""
    at, drawn = (torch.tensor(value, device=inputs.device) for value in (timestep, key))
    return ClientContext(deployment, inputs, at, drawn, shared)


def observed(
    method: Method, scoring: ClientContext, state: Tree, truth: Truth | None, counter: PassCounter | None
) -> tuple[Tree, Plan, ClientContext]:
    """State and plan after a batch, and the context in which the client then predicts it, with the passes it knows.
    Only what the method itself does is counted, and only oracles are given the truth."""
    observing = replace(scoring, deployment=scoring.deployment.counting(counter), truth=truth)
    moved, plan = method.observe(observing, state)
    return moved, plan, scoring.after_observing()


def exchanged_alone(
    method: FederatedMethod, ctx: ClientContext, state: Tree, plan: Plan, key: int
) -> tuple[Tree, Plan, Shared]:
    """A round of a federation of one: its own uplink is all that the server aggregates."""
    deployment, drawn = ctx.deployment, torch.full_like(ctx.key, key)
    before = RoundContext(deployment, ctx.inputs, ctx.timestep, drawn, ctx.shared)
    state, plan, uplink = method.local_round(before, state, plan)
    size = torch.full((1,), float(len(ctx.inputs)), device=ctx.inputs.device)
    shared, downlinks = method.aggregate(deployment, dict(ctx.shared), tree.stack([uplink]), size)
    after = RoundContext(deployment, ctx.inputs, ctx.timestep, drawn, shared, downlink=tree.take(downlinks, 0))
    return *method.personalise(after, state, plan), shared
