"""FedAvg: one model for all clients, the weighted mean of what they trained (McMahan et al., AISTATS 2017).

Ported to streams without labels: participants descend the same label-free objective as Fed-ADE, at its middle rate.
Nothing is personal, so clients whose class priors differ pull the one model in different directions.
"""

from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, Plan, RoundContext, Shared
from fedade.parts.composition import own_model, own_prediction, trainable
from fedade.parts.optimisers import OptimiserState
from fedade.parts.participation import FixedRateBaseline
from fedade.parts.priors import refuse_unsafe_inverse


class FedAvg(FixedRateBaseline[OptimiserState]):
    """All layers are shared; a client keeps nothing but what its optimiser remembers."""

    about = Card(
        summary="one model for all clients, averaged over the participants of each round",
        paper="McMahan et al., AISTATS 2017",
    )

    epochs: int = Field(4, ge=0)
    """Epochs of a participant in a round: as many as Fed-ADE's joint and personal ones."""

    def begin(self, ctx: ClientContext) -> OptimiserState:
        refuse_unsafe_inverse(ctx.deployment, self.prior)
        return self.optimiser.start(trainable(ctx.deployment))

    def begin_server(self, deployment: Deployment) -> Shared:
        return trainable(deployment)

    def local_round(
        self, ctx: RoundContext, state: OptimiserState, plan: Plan
    ) -> tuple[OptimiserState, Plan, dict[str, Tensor]]:
        """ClientUpdate: epochs from the broadcast model, all of which is sent back."""
        training = self.training(ctx, plan)
        moved, state = training.joint(ctx.shared, own_model(ctx, {}), training.steps(range(self.epochs)), state)
        return state, plan, moved

    def predict(self, ctx: ClientContext, state: OptimiserState) -> Tensor:
        return own_prediction(ctx, {})
