"""Federated pseudo-labelling: shared layers are averaged after training on confident, class-balanced own labels.

Self-training (Lee, 2013) with FedAvg (McMahan et al., 2017). It stands for the family of the paper's FedSPL, of
which no code and no full description is public. A model that is wrong with confidence teaches itself its errors.
"""

from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, FederatedMethod, Plan, RoundContext, Shared
from fedade.maths.losses import class_balanced, confident_labels
from fedade.parts.composition import own_prediction, trainable, trainable_personal, trainable_shared
from fedade.parts.objectives import labelled_samples
from fedade.parts.optimisers import Optimiser, PhaseStates
from fedade.parts.participation import Participant, joint_step
from fedade.parts.rates import RateBounds, constant_rate
from fedade.parts.training import Training


class FedPseudo(FederatedMethod[Participant, Shared]):
    """Shared body, personal head, labels from the client's own model."""

    about = Card(
        summary="shared body and personal head, trained on the clients' own confident predictions",
        paper="Lee, 2013, with McMahan et al., 2017",
    )

    rate: RateBounds = RateBounds()
    """Only `mid` is used."""
    confidence: float = Field(0.9, ge=0, le=1)
    """Predictions below it are left out."""
    epochs: int = Field(4, ge=0)
    """Epochs per round."""
    batch_size: int = Field(32, ge=1)
    optimiser: Optimiser = Optimiser()

    def begin(self, ctx: ClientContext) -> Participant:
        states = PhaseStates(joint=self.optimiser.start(trainable(ctx.deployment)), personal=())
        return Participant(trainable_personal(ctx.deployment), states)

    def begin_server(self, deployment: Deployment) -> Shared:
        return trainable_shared(deployment)

    def observe(self, ctx: ClientContext, state: Participant) -> tuple[Participant, Plan]:
        """The plan says which share of the batch is trusted."""
        trusted = confident_labels(self.predict(ctx, state), self.confidence)[1].mean(-1)
        return state, {"learning_rate": constant_rate(self.rate.mid, trusted), "trusted": trusted}

    def local_round(self, ctx: RoundContext, state: Participant, plan: Plan) -> tuple[Participant, Plan, Shared]:
        """Labels from the model as it enters the round, then joint steps on body and head."""
        labels, trust = confident_labels(self.predict(ctx, state), self.confidence)
        objective = labelled_samples(labels, class_balanced(labels, trust, ctx.deployment.num_classes))
        training = Training(ctx, objective, plan, self.batch_size, self.optimiser)
        own, states, uplink = joint_step(training, state.own, state.states, range(self.epochs))
        return Participant(own, states), plan, uplink

    def predict(self, ctx: ClientContext, state: Participant) -> Tensor:
        return own_prediction(ctx, state.own)
