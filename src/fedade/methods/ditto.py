"""Ditto: a personal model per client, held near the global one by a proximal term (Li et al., ICML 2021).

Ported to streams without labels: both models descend the same label-free objective as Fed-ADE, at its middle rate. Each
client keeps a whole model, so memory is N·|θ|.
"""

from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, Plan, RoundContext, Shared
from fedade.core.split import Parameters
from fedade.parts.composition import own_model, own_prediction, trainable
from fedade.parts.optimisers import Minibatches, PhaseStates
from fedade.parts.participation import FixedRateBaseline, Participant
from fedade.parts.priors import refuse_unsafe_inverse
from fedade.parts.training import Training


class Ditto(FixedRateBaseline[Participant]):
    """FedAvg trains the global model w; beside it every client trains its own v."""

    about = Card(
        summary="a whole personal model per client, drawn towards the FedAvg model by a proximal term",
        paper="Li et al., ICML 2021",
    )

    pull: float = Field(1.0, ge=0)
    """λ: how strongly the personal model is drawn to the global one; 0 trains it alone."""
    global_epochs: int = Field(2, ge=0)
    """Epochs of the common model, per round."""
    personal_epochs: int = Field(2, ge=0)

    def begin(self, ctx: ClientContext) -> Participant:
        refuse_unsafe_inverse(ctx.deployment, self.prior)
        model = trainable(ctx.deployment)
        return Participant(model, PhaseStates(self.optimiser.start(model), self.optimiser.start(model)))

    def begin_server(self, deployment: Deployment) -> Shared:
        return trainable(deployment)

    def local_round(
        self, ctx: RoundContext, state: Participant, plan: Plan
    ) -> tuple[Participant, Plan, dict[str, Tensor]]:
        """Steps of v around the w that was broadcast, and steps from w itself, which are sent."""
        training, fixed = self.training(ctx, plan), own_model(ctx, {})
        global_steps = training.steps(range(self.global_epochs))
        towards_global, joint = training.joint(ctx.shared, fixed, global_steps, state.states.joint)
        epochs = range(self.global_epochs, self.global_epochs + self.personal_epochs)
        state = state._replace(states=state.states._replace(joint=joint))
        return self._proximal(training, state, ctx.shared, fixed, training.steps(epochs)), plan, towards_global

    def predict(self, ctx: ClientContext, state: Participant) -> Tensor:
        """Class probabilities under v, which is a whole model; the global one only pulls."""
        return own_prediction(ctx, state.own)

    def _proximal(
        self, training: Training, client: Participant, centre: Parameters, fixed: Parameters, steps: Minibatches
    ) -> Participant:
        """v ← v - η(∇F(v) + λ(v - w)), Algorithm 1 of the paper; like weight decay, the pull is no part of moments."""
        moved, state = client.own, client.states.personal
        for rows in steps:
            descended, state = training.joint(moved, fixed, [rows], state)
            moved = {
                name: descended[name] - training.rate * self.pull * (value - centre[name])
                for name, value in moved.items()
            }
        return Participant(moved, client.states._replace(personal=state))
