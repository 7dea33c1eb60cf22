"""FedAvg: one model for all clients, the weighted mean of what they trained (McMahan et al., AISTATS 2017).

Ported to streams without labels: participants descend the same label-free objective as Fed-ADE, at its middle rate.
Nothing is personal, so clients whose class priors differ pull the one model in different directions.
"""

from pydantic import Field

from fedade.core.method import Card, Plan, RoundContext, Shared
from fedade.parts.composition import own_model
from fedade.parts.participation import FixedRateBaseline, Participant


class FedAvg(FixedRateBaseline):
    """All layers are shared; a client keeps nothing but what its optimiser remembers."""

    about = Card(
        "one model for all clients, averaged over the participants of each round", "McMahan et al., AISTATS 2017"
    )

    epochs: int = Field(4, ge=0)
    """Epochs of a participant in a round: as many as Fed-ADE's joint and personal ones."""

    def local_round(self, ctx: RoundContext, state: Participant, plan: Plan) -> tuple[Participant, Plan, Shared]:
        """ClientUpdate: epochs from the broadcast model, all of which is sent back."""
        training, states = self.training(ctx, plan), state.states
        steps = training.steps(range(self.epochs))
        moved, joint = training.joint(ctx.shared, own_model(ctx, {}), steps, states.joint)
        return state._replace(states=states._replace(joint=joint)), plan, moved
