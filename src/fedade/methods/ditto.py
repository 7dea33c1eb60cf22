"""Ditto: a personal model per client, held near the global one by a proximal term (Li et al., ICML 2021).

Ported to streams without labels: both models descend the same label-free objective as Fed-ADE, at its middle rate. Each
client keeps a whole model, so memory is N·|θ|.

Mean `post` accuracy on the default runs (presets digits-label and digits-covariate, seed 0; source 74.7 and 58.8):
label shift 69.9, covariate shift 49.6, both far below the source. That run's rate is too high for it: with
`rate.mid` at 0.01 instead of 0.05 they are 77.9 and 55.1.
"""

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.method import Card, Observation
from fedade.core.split import Parameters
from fedade.parts.composition import effective
from fedade.parts.objectives import OBJECTIVES, ObjectiveName
from fedade.parts.optimisers import Optimiser, PhaseStates
from fedade.parts.participation import Participant, fixed_plan, label_free_work, trainable
from fedade.parts.priors import Estimator, refuse_unsafe_inverse
from fedade.parts.rates import RateBounds
from fedade.parts.training import Minibatches, ReferenceDraws, Training
from fedade.parts.vectors import average


class Ditto(BaseModel):
    """FedAvg trains the global model w; beside it every client trains its own v."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: RateBounds = RateBounds()
    """Only `mid` is used."""
    prior: Estimator = "simplex_ls"
    objective: ObjectiveName = "bbse"
    pull: float = Field(1.0, ge=0)
    """λ: how strongly the personal model is drawn to the global one; 0 trains it alone."""
    global_epochs: int = Field(2, ge=0)
    personal_epochs: int = Field(2, ge=0)
    batch_size: int = Field(32, ge=1)
    reference_draws: ReferenceDraws = "epoch"
    """`bbse`: whether an epoch reads the whole reference set, or as many rows as the batch has, drawn by the prior."""
    optimiser: Optimiser = Optimiser()

    @property
    def card(self) -> Card:
        return Card(
            summary="a whole personal model per client, drawn towards the FedAvg model by a proximal term",
            paper="Li et al., ICML 2021",
            reference="reference" in OBJECTIVES[self.objective].examples,
        )

    @property
    def fixed_participants(self) -> bool:
        return False

    def init_client(self, deployment: Deployment) -> Participant:
        """v starts as deployed."""
        refuse_unsafe_inverse(deployment, self.prior)
        model = trainable(deployment)
        return Participant(model, PhaseStates(self.optimiser.start(model), self.optimiser.start(model)))

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
        """Steps of v around the w that was broadcast, and steps from w itself, which are sent."""
        work = label_free_work(self, deployment, observation.inputs, plan, key)
        below = effective(deployment, shared, {})
        towards_global, state = work.training.joint(
            shared, below, work.steps(range(self.global_epochs)), client.states.joint
        )
        epochs = range(self.global_epochs, self.global_epochs + self.personal_epochs)
        client = client._replace(states=client.states._replace(joint=state))
        return self._proximal(work.training, client, shared, below, work.steps(epochs)), plan, towards_global

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
        """With v; the global model only pulls."""
        return deployment.network.logits(effective(deployment, {}, client.own), inputs).softmax(-1)

    def init_server(self, deployment: Deployment) -> dict[str, Tensor]:
        return trainable(deployment)

    def aggregate(
        self, deployment: Deployment, server: Parameters, uplinks: Parameters, weights: Tensor
    ) -> tuple[dict[str, Tensor], tuple[()]]:
        return average(uplinks, weights), ()

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
