"""A round of Algorithm 1 of one participant: a joint step on ψ and φ, and a personal step on φ after the broadcast."""

from types import MappingProxyType

from torch import Tensor

from fedade.core.split import Parameters
from fedade.parts.composition import effective, trainable_part
from fedade.parts.optimisers import PhaseStates
from fedade.parts.training import Minibatches, Training


def joint_step(
    training: Training,
    own: Parameters,
    shared: Parameters,
    states: PhaseStates,
    minibatches: Minibatches,
    unmoved: Parameters = MappingProxyType({}),
) -> tuple[dict[str, Tensor], PhaseStates, dict[str, Tensor]]:
    """Lines 11 and 12 (eq:local_joint_update): the client's own tensors, its optimisers' states, and ψ to send.

    `unmoved` are tensors that the client computes with and no step moves, such as statistics.
    """
    deployment = training.deployment
    trainable = deployment.network.trainable()
    moving = {**shared, **{name: value for name, value in own.items() if name in trainable}}
    fixed = effective(deployment, shared, {**own, **unmoved})
    moved, state = training.joint(moving, fixed, minibatches, states.joint)
    kept = {name: moved.get(name, value) for name, value in own.items()}
    return kept, states._replace(joint=state), {name: moved[name] for name in shared}


def personal_step(
    training: Training,
    own: Parameters,
    shared: Parameters,
    states: PhaseStates,
    minibatches: Minibatches,
    unmoved: Parameters = MappingProxyType({}),
) -> tuple[dict[str, Tensor], PhaseStates]:
    """Lines 17 and 18 (eq:local_personal_update): φ moves while the broadcast ψ̄ is frozen."""
    deployment = training.deployment
    fixed = effective(deployment, shared, {**own, **unmoved})
    moved, state = training.personal(trainable_part(deployment, own), fixed, minibatches, states.personal)
    return {**own, **moved}, states._replace(personal=state)
