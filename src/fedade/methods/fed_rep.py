"""FedRep: every client first fits its own head, then improves the representation that all share (Collins et al., 2021).

Ported to streams without labels: both steps descend the same label-free objective as Fed-ADE, at its middle rate.
Unlike in Fed-ADE, body and head never move together, and the head is not touched again after the broadcast.
"""

from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, Deployment, Plan, RoundContext, Shared
from fedade.parts.composition import own_model, trainable_personal, trainable_shared
from fedade.parts.optimisers import PhaseStates
from fedade.parts.participation import FixedRateBaseline, Participant


class FedRep(FixedRateBaseline):
    """Alternating minimisation, head before body."""

    about = Card(
        summary="shared body, personal head; a participant fits its head first, then the body under it",
        paper="Collins et al., ICML 2021",
    )

    head_epochs: int = Field(10, ge=0)
    """Epochs of the head, per round."""
    body_epochs: int = Field(5, ge=0)
    """Epochs of the body, per round."""

    def own_part(self, deployment: Deployment) -> dict[str, Tensor]:
        return trainable_personal(deployment)

    def begin_server(self, deployment: Deployment) -> Shared:
        return trainable_shared(deployment)

    def local_round(self, ctx: RoundContext, state: Participant, plan: Plan) -> tuple[Participant, Plan, Shared]:
        """Epochs on the head with the body frozen, then epochs on the body with the new head frozen."""
        training, states = self.training(ctx, plan), state.states
        head_steps = training.steps(range(self.head_epochs))
        body_steps = training.steps(range(self.head_epochs, self.head_epochs + self.body_epochs))
        head, after_head = training.personal(state.own, own_model(ctx, state.own), head_steps, states.personal)
        body, after_body = training.joint(ctx.shared, own_model(ctx, head), body_steps, states.joint)
        return Participant(head, PhaseStates(joint=after_body, personal=after_head)), plan, body
