"""FedAvg: one model for all clients, the weighted mean of what they trained (McMahan et al., AISTATS 2017).

Ported to streams without labels: participants descend the same label-free objective as Fed-ADE, at its middle rate.
Nothing is personal, so clients whose class priors differ pull the one model in different directions.

Mean `post` accuracy on the default runs (presets digits-label and digits-covariate, seed 0; source 74.7 and 58.8):
label shift 77.4, covariate shift 61.7.
"""

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.method import Card, Observation
from fedade.core.split import Parameters
from fedade.parts.composition import effective
from fedade.parts.objectives import OBJECTIVES, ObjectiveName
from fedade.parts.optimisers import Optimiser, OptimiserState
from fedade.parts.participation import fixed_plan, label_free_work, trainable
from fedade.parts.priors import Estimator, refuse_unsafe_inverse
from fedade.parts.rates import RateBounds
from fedade.parts.training import ReferenceDraws
from fedade.parts.vectors import average


class FedAvg(BaseModel):
    """All layers are shared; a client keeps nothing but what its optimiser remembers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: RateBounds = RateBounds()
    """Only `mid` is used."""
    prior: Estimator = "simplex_ls"
    objective: ObjectiveName = "bbse"
    epochs: int = Field(4, ge=0)
    """Of a participant in a round: as many as Fed-ADE's joint and personal ones."""
    batch_size: int = Field(32, ge=1)
    reference_draws: ReferenceDraws = "epoch"
    """`bbse`: whether an epoch reads the whole reference set, or as many rows as the batch has, drawn by the prior."""
    optimiser: Optimiser = Optimiser()

    @property
    def card(self) -> Card:
        return Card(
            summary="one model for all clients, averaged over the participants of each round",
            paper="McMahan et al., AISTATS 2017",
            reference="reference" in OBJECTIVES[self.objective].examples,
        )

    @property
    def fixed_participants(self) -> bool:
        return False

    def init_client(self, deployment: Deployment) -> OptimiserState:
        refuse_unsafe_inverse(deployment, self.prior)
        return self.optimiser.start(trainable(deployment))

    def observe(
        self, deployment: Deployment, client: OptimiserState, shared: Parameters, observation: Observation
    ) -> tuple[OptimiserState, dict[str, Tensor]]:
        return client, fixed_plan(deployment, observation.inputs, self.rate.mid, self.prior)

    def local_round(
        self,
        deployment: Deployment,
        client: OptimiserState,
        plan: dict[str, Tensor],
        shared: Parameters,
        observation: Observation,
        key: Tensor,
    ) -> tuple[OptimiserState, dict[str, Tensor], dict[str, Tensor]]:
        """ClientUpdate: epochs from the broadcast model, all of which is sent back."""
        work = label_free_work(self, deployment, observation.inputs, plan, key)
        steps = work.steps(range(self.epochs))
        moved, state = work.training.joint(shared, effective(deployment, shared, {}), steps, client)
        return state, plan, moved

    def personalise(
        self,
        deployment: Deployment,
        client: OptimiserState,
        plan: dict[str, Tensor],
        shared: Parameters,
        downlink: tuple[()],
        observation: Observation,
        key: Tensor,
    ) -> tuple[OptimiserState, dict[str, Tensor]]:
        return client, plan

    def predict(self, deployment: Deployment, client: OptimiserState, shared: Parameters, inputs: Tensor) -> Tensor:
        return deployment.network.logits(effective(deployment, shared, {}), inputs).softmax(-1)

    def init_server(self, deployment: Deployment) -> dict[str, Tensor]:
        return trainable(deployment)

    def aggregate(
        self, deployment: Deployment, server: Parameters, uplinks: Parameters, weights: Tensor
    ) -> tuple[dict[str, Tensor], tuple[()]]:
        return average(uplinks, weights), ()
