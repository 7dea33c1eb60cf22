"""Steps on the scales and shifts of normalisation layers, each taken only where it is wanted."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import grad

from fedade.core.method import Deployment, Plan
from fedade.core.tree import Tree, tree_map
from fedade.parts.norm_layers import norm_affine
from fedade.parts.optimisers import Optimiser
from fedade.parts.participation import Learner
from fedade.parts.statistics import warn_without_batch_norm

Loss = Callable[[dict[str, Tensor]], tuple[Tensor, Tree]]
"""From tensors that move to a loss, and what else it found."""


def norm_learner(deployment: Deployment, method: str, optimiser: Optimiser, include_last_stage: bool = True) -> Learner:
    """The deployed scales and shifts before a method's first step; it warns where there is no BatchNorm."""
    own = norm_affine(deployment, method, include_last_stage)
    warn_without_batch_norm(deployment, method, "it moves the scales of the norms that the model has")
    return Learner(own, optimiser.start(own))


def plan_with_reliable(rate: float, reliable: Tensor, like: Tensor) -> Plan:
    """A plan of a fixed rate, with the share of samples `[n]` that a step has used."""
    share = reliable.to(like.dtype).mean()
    return {"learning_rate": torch.full_like(share, rate), "reliable": share}


def chosen(condition: Tensor, new: Tree, old: Tree) -> Tree:
    """The new tree where the condition holds, the old one elsewhere."""
    return tree_map(lambda one, other: torch.where(condition, one, other), new, old)


def masked_mean(values: Tensor, wanted: Tensor) -> Tensor:
    """Mean of the wanted values; 0 where there is none."""
    return torch.where(wanted, values, 0.0).sum() / wanted.sum().clamp_min(1)


def step(learner: Learner, loss: Loss, optimiser: Optimiser, rate: float, wanted: Tensor | None = None) -> Learner:
    """A learner after one step on a loss, its optimiser's memory included; as it was where no step is wanted."""
    slopes, _ = grad(loss, has_aux=True)(learner.own)
    return moved(learner, slopes, optimiser, rate, wanted)


def moved(
    learner: Learner, slopes: dict[str, Tensor], optimiser: Optimiser, rate: float, wanted: Tensor | None = None
) -> Learner:
    """A learner after one step along known slopes; as it was where no step is wanted."""
    directions, state = optimiser.directions(learner.own, slopes, learner.state)
    after = Learner({name: value - rate * directions[name] for name, value in learner.own.items()}, state)
    return after if wanted is None else Learner(*chosen(wanted, after, learner))
