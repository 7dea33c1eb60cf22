"""BBSE or EM reweighting (Lipton et al., 2018; Saerens et al., 2002): correct the posterior for the batch's own prior.

The simplest answer to label shift, and a row that the paper's table lacks: it remembers nothing but the last estimate.

Good on the batch that the prior was estimated from, bad on the next: on the default data under the square schedule
BBSE scores 78.9 % after and 71.9 % before each update, EM 78.7 % and 69.5 %, the deployed model 74.1 %. Corrupted
inputs look like a change of classes to it: under covariate shift (40 clients, 20 timesteps) the deployed model scores
61.0 %, BBSE 53.4 % and EM 51.6 %.
"""

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.method import Card, Observation
from fedade.maths.simplex import mix_with_uniform
from fedade.parts.priors import Estimator, batch_prior, refuse_unsafe_inverse
from fedade.parts.reweighting import UNIFORM_SHARE, reweighted


class PriorReweighting(BaseModel):
    """Frozen classifier times the class prior of the current batch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prior: Estimator = "simplex_ls"
    uniform_share: float = Field(UNIFORM_SHARE, ge=0, le=1)
    """Of the uniform distribution in the estimate."""

    @property
    def card(self) -> Card:
        likelihood = self.prior in ("mlls", "map_em")
        return Card(
            summary=f"deployed model reweighted by the batch's class prior, estimated by {self.prior}",
            paper="Saerens et al., 2002" if likelihood else "Lipton et al., ICML 2018",
            keeps_body=True,
        )

    def init_client(self, deployment: Deployment) -> Tensor:
        """The prior in force: that of the pre-training data."""
        refuse_unsafe_inverse(deployment, self.prior)
        return deployment.source_prior

    def observe(
        self, deployment: Deployment, client: Tensor, shared: tuple[()], observation: Observation
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Forget the last prior, estimate this batch's."""
        prior = mix_with_uniform(batch_prior(deployment, observation.inputs, self.prior), self.uniform_share)
        return prior, {"prior": prior}

    def predict(self, deployment: Deployment, client: Tensor, shared: tuple[()], inputs: Tensor) -> Tensor:
        """p(x) ∘ q / μ0, normalised."""
        return reweighted(deployment, client, inputs)
