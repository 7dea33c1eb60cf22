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
from fedade.parts.composition import effective
from fedade.parts.optimisers import Optimiser
from fedade.parts.participation import Learner, LocalWork, trainable
from fedade.parts.rates import RateBounds
from fedade.parts.supervision import Labelled


class OracleFinetune(BaseModel):
    """Supervised steps on body and head, without a server."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: RateBounds = RateBounds()
    """Only `mid` is used."""
    epochs: int = Field(4, ge=0)
    batch_size: int = Field(32, ge=1)
    optimiser: Optimiser = Optimiser()

    @property
    def card(self) -> Card:
        return Card(summary="every client fine-tunes on the true labels of its batch", paper="none", oracle=True)

    def init_client(self, deployment: Deployment) -> Learner:
        own = trainable(deployment)
        return Learner(own, self.optimiser.start(own))

    def observe(
        self, deployment: Deployment, client: Learner, shared: tuple[()], observation: OracleObservation
    ) -> tuple[Learner, dict[str, Tensor]]:
        rate = torch.full_like(observation.prior[0], self.rate.mid, dtype=deployment.source_prior.dtype)
        plan = {"learning_rate": rate}
        objective = Labelled(observation.labels, torch.ones_like(observation.labels, dtype=rate.dtype))
        inputs, key = observation.inputs, observation.key
        work = LocalWork(deployment, objective, self.batch_size, inputs, plan, key, self.optimiser)
        steps = work.steps(range(self.epochs))
        return Learner(*work.training.joint(client.own, deployment.parameters, steps, client.state)), plan

    def predict(self, deployment: Deployment, client: Learner, shared: tuple[()], inputs: Tensor) -> Tensor:
        return deployment.network.logits(effective(deployment, {}, client.own), inputs).softmax(-1)
