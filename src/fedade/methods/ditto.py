"""Ditto: a personal model per client, held near the global one by a proximal term (Li et al., ICML 2021).

Ported to streams without labels: both models descend the same label-free objective as Fed-ADE, at its middle rate. Each
client keeps a whole model, so memory is N·|θ|.
"""

from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, Deployment, Plan, RoundContext, Shared
from fedade.parts.composition import own_model, trainable
from fedade.parts.optimisers import PhaseStates
from fedade.parts.participation import FixedRateBaseline, Participant


class Ditto(FixedRateBaseline):
    """FedAvg trains the global model w; beside it every client trains its own v."""

    about = Card(
        "a whole personal model per client, drawn towards the FedAvg model by a proximal term", "Li et al., ICML 2021"
    )

    pull: float = Field(1.0, ge=0)
    """λ: how strongly the personal model is drawn to the global one; 0 trains it alone."""
    global_epochs: int = Field(2, ge=0)
    """Epochs of the common model, per round."""
    personal_epochs: int = Field(2, ge=0)

    def own_part(self, deployment: Deployment) -> dict[str, Tensor]:
        """v is a whole model; the global one only pulls."""
        return trainable(deployment)

    def local_round(self, ctx: RoundContext, state: Participant, plan: Plan) -> tuple[Participant, Plan, Shared]:
        """Steps of v around the w that was broadcast, and steps from w itself, which are sent. v ← v - η(∇F(v) + λ(v -
        w)), Algorithm 1 of the paper; like weight decay, the pull is no part of moments."""
        training, fixed = self.training(ctx, plan), own_model(ctx, {})
        global_steps = training.steps(range(self.global_epochs))
        towards_global, joint = training.joint(ctx.shared, fixed, global_steps, state.states.joint)
        moved, personal = state.own, state.states.personal
        for rows in training.steps(range(self.global_epochs, self.global_epochs + self.personal_epochs)):
            descended, personal = training.joint(moved, fixed, [rows], personal)
            moved = {
                name: descended[name] - training.rate * self.pull * (value - ctx.shared[name])
                for name, value in moved.items()
            }
        return Participant(moved, PhaseStates(joint, personal)), plan, towards_global
