"""No adaptation: the deployed model as it is, the row that the paper's table lacks."""

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.method import Card, Observation


class Source(BaseModel):
    """Predicts with the deployed model for ever."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def card(self) -> Card:
        return Card(summary="no adaptation: the deployed model", paper="none", keeps_body=True)

    def init_client(self, deployment: Deployment) -> tuple[()]:
        return ()

    def observe(
        self,
        deployment: Deployment,
        client: tuple[()],
        shared: tuple[()],
        observation: Observation,
    ) -> tuple[tuple[()], dict[str, Tensor]]:
        return client, {}

    def predict(
        self,
        deployment: Deployment,
        client: tuple[()],
        shared: tuple[()],
        inputs: Tensor,
    ) -> Tensor:
        return deployment.network.logits(deployment.parameters, inputs).softmax(-1)
