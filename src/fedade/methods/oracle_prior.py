"""An upper bound under label shift: the deployed model's posterior, reweighted by the true class prior."""

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.method import Card, OracleObservation
from fedade.maths.reweighting import reweight
from fedade.parts.priors import deployed_probabilities


class OraclePrior(BaseModel):
    """Sees Q_c^t of the current timestep; everyone else has to estimate it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def card(self) -> Card:
        return Card(
            summary="deployed model reweighted by the true class prior", paper="none", oracle=True, keeps_body=True
        )

    def init_client(self, deployment: Deployment) -> Tensor:
        return deployment.source_prior

    def observe(
        self,
        deployment: Deployment,
        client: Tensor,
        shared: tuple[()],
        observation: OracleObservation,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        return observation.prior, {"prior": observation.prior}

    def predict(self, deployment: Deployment, client: Tensor, shared: tuple[()], inputs: Tensor) -> Tensor:
        return reweight(deployed_probabilities(deployment, inputs), client, deployment.source_prior)
