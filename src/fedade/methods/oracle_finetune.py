"""What labels would buy: every client fine-tunes its whole model on the labelled batch of each timestep.

An oracle. Its `post` accuracy is that of the very samples it was trained on, so `pre` and `fresh` are the figures to
read. Mean `pre` accuracy on the default runs (presets digits-label and digits-covariate, seed 0; source 74.7
and 58.8): label shift 85.2, covariate shift 71.1.
"""

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.method import Card, OracleObservation
from fedade.core.split import Parameters
from fedade.parts.composition import effective
from fedade.parts.participation import LocalWork, trainable
from fedade.parts.rates import RateBounds
from fedade.parts.supervision import Labelled


class OracleFinetune(BaseModel):
    """Supervised SGD on body and head, without a server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: RateBounds = RateBounds()
    """Only `mid` is used."""
    epochs: int = Field(4, ge=0)
    batch_size: int = Field(32, ge=1)

    @property
    def card(self) -> Card:
        return Card(summary="every client fine-tunes on the true labels of its batch", paper="none", oracle=True)

    def init_client(self, deployment: Deployment) -> dict[str, Tensor]:
        return trainable(deployment)

    def observe(
        self, deployment: Deployment, client: Parameters, shared: tuple[()], observation: OracleObservation
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        rate = torch.full_like(observation.prior[0], self.rate.mid, dtype=deployment.source_prior.dtype)
        plan = {"learning_rate": rate}
        objective = Labelled(observation.labels, torch.ones_like(observation.labels, dtype=rate.dtype))
        work = LocalWork(deployment, objective, self.batch_size, observation.inputs, plan, observation.key)
        return work.training.joint(client, deployment.parameters, work.steps(range(self.epochs))), plan

    def predict(self, deployment: Deployment, client: Parameters, shared: tuple[()], inputs: Tensor) -> Tensor:
        return deployment.network.logits(effective(deployment, {}, client), inputs).softmax(-1)
