"""A round of Algorithm 1 of one participant: a joint step on ψ and φ, and a personal step on φ after the broadcast."""

from types import MappingProxyType

from torch import Tensor

from fedade.core.split import Parameters
from fedade.parts.composition import own_model, trainable_part
from fedade.parts.optimisers import PhaseStates
from fedade.parts.training import Training

_NOTHING: Parameters = MappingProxyType({})


def joint_step(
    training: Training, own: Parameters, states: PhaseStates, epochs: range, unmoved: Parameters = _NOTHING
) -> tuple[dict[str, Tensor], PhaseStates, dict[str, Tensor]]:
    """Lines 11 and 12 (eq:local_joint_update): the client's own tensors, its optimisers' states, and ψ to send.

    `unmoved` are tensors that the client computes with and no step moves, such as statistics.
    """
    ctx, trainable = training.ctx, training.deployment.network.trainable()
    moving = {**ctx.shared, **{name: value for name, value in own.items() if name in trainable}}
    moved, state = training.joint(moving, own_model(ctx, {**own, **unmoved}), training.steps(epochs), states.joint)
    kept = {name: moved.get(name, value) for name, value in own.items()}
    return kept, states._replace(joint=state), {name: moved[name] for name in ctx.shared}


def personal_step(
    training: Training, own: Parameters, states: PhaseStates, epochs: range, unmoved: Parameters = _NOTHING
) -> tuple[dict[str, Tensor], PhaseStates]:
    """Lines 17 and 18 (eq:local_personal_update): φ moves while the broadcast ψ̄ is frozen."""
    fixed = own_model(training.ctx, {**own, **unmoved})
    moving = trainable_part(training.deployment, own)
    moved, state = training.personal(moving, fixed, training.steps(epochs), states.personal)
    return {**own, **moved}, states._replace(personal=state)
