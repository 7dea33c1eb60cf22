"""FedRep: every client first fits its own head, then improves the representation that all share (Collins et al., 2021).

Ported to streams without labels: both steps descend the same label-free objective as Fed-ADE, at its middle rate.
Unlike in Fed-ADE, body and head never move together, and the head is not touched again after the broadcast.

Mean `post` accuracy on the default runs (presets digits-label and digits-covariate, seed 0; source 74.7 and 58.8):
label shift 77.8, covariate shift 61.6.
"""

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.method import Card, Observation
from fedade.core.split import Parameters
from fedade.parts.composition import effective
from fedade.parts.objectives import OBJECTIVES, ObjectiveName
from fedade.parts.optimisers import Optimiser, PhaseStates
from fedade.parts.participation import Participant, fixed_plan, label_free_work, trainable_personal, trainable_shared
from fedade.parts.priors import Estimator, refuse_unsafe_inverse
from fedade.parts.rates import RateBounds
from fedade.parts.training import ReferenceDraws
from fedade.parts.vectors import average


class FedRep(BaseModel):
    """Alternating minimisation, head before body."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: RateBounds = RateBounds()
    """Only `mid` is used."""
    prior: Estimator = "simplex_ls"
    objective: ObjectiveName = "bbse"
    head_epochs: int = Field(10, ge=0)
    body_epochs: int = Field(5, ge=0)
    batch_size: int = Field(32, ge=1)
    reference_draws: ReferenceDraws = "epoch"
    """`bbse`: whether an epoch reads the whole reference set, or as many rows as the batch has, drawn by the prior."""
    optimiser: Optimiser = Optimiser()

    @property
    def card(self) -> Card:
        return Card(
            summary="shared body, personal head; a participant fits its head first, then the body under it",
            paper="Collins et al., ICML 2021",
            reference="reference" in OBJECTIVES[self.objective].examples,
        )

    @property
    def fixed_participants(self) -> bool:
        return False

    def init_client(self, deployment: Deployment) -> Participant:
        refuse_unsafe_inverse(deployment, self.prior)
        head, body = trainable_personal(deployment), trainable_shared(deployment)
        return Participant(head, PhaseStates(joint=self.optimiser.start(body), personal=self.optimiser.start(head)))

    def observe(
        self, deployment: Deployment, client: Participant, shared: Parameters, observation: Observation
    ) -> tuple[Participant, dict[str, Tensor]]:
        return client, fixed_plan(deployment, observation.inputs, self.rate.mid, self.prior)

    def local_round(
        self,
        deployment: Deployment,
        client: Participant,
        plan: dict[str, Tensor],
        shared: Parameters,
        observation: Observation,
        key: Tensor,
    ) -> tuple[Participant, dict[str, Tensor], dict[str, Tensor]]:
        """Epochs on the head with the body frozen, then epochs on the body with the new head frozen."""
        work = label_free_work(self, deployment, observation.inputs, plan, key)
        head_steps = work.steps(range(self.head_epochs))
        body_steps = work.steps(range(self.head_epochs, self.head_epochs + self.body_epochs))
        training, states = work.training, client.states
        head, after_head = training.personal(
            client.own, effective(deployment, shared, client.own), head_steps, states.personal
        )
        body, after_body = training.joint(shared, effective(deployment, shared, head), body_steps, states.joint)
        return Participant(head, PhaseStates(joint=after_body, personal=after_head)), plan, body

    def personalise(
        self,
        deployment: Deployment,
        client: Participant,
        plan: dict[str, Tensor],
        shared: Parameters,
        downlink: tuple[()],
        observation: Observation,
        key: Tensor,
    ) -> tuple[Participant, dict[str, Tensor]]:
        return client, plan

    def predict(self, deployment: Deployment, client: Participant, shared: Parameters, inputs: Tensor) -> Tensor:
        return deployment.network.logits(effective(deployment, shared, client.own), inputs).softmax(-1)

    def init_server(self, deployment: Deployment) -> dict[str, Tensor]:
        return trainable_shared(deployment)

    def aggregate(
        self, deployment: Deployment, server: Parameters, uplinks: Parameters, weights: Tensor
    ) -> tuple[dict[str, Tensor], tuple[()]]:
        return average(uplinks, weights), ()
