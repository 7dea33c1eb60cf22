"""BBSE or EM reweighting (Lipton et al., 2018; Saerens et al., 2002): correct the posterior for the batch's own prior.

The simplest answer to label shift, and a row that the paper's table lacks: it remembers nothing but the last estimate.
Good on the batch that the prior was estimated from, bad on the next. Corrupted inputs look like a change of classes to
it.
"""

from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.maths.priors.simplex import mix_with_uniform
from fedade.parts.priors import UNIFORM_SHARE, Estimator, batch_prior, refuse_unsafe_inverse, reweighted


class PriorReweighting(Method[Tensor]):
    """Frozen classifier times the class prior of the current batch."""

    prior: Estimator = "simplex_ls"
    uniform_share: float = Field(UNIFORM_SHARE, ge=0, le=1)
    """Share of the uniform distribution in the estimate."""

    @property
    def card(self) -> Card:
        paper = "Saerens et al., 2002" if self.prior in ("mlls", "map_em") else "Lipton et al., ICML 2018"
        summary = f"deployed model reweighted by the batch's class prior, estimated by {self.prior}"
        return Card(summary, paper, reweights=True, keeps_body=True)

    def begin(self, ctx: ClientContext) -> Tensor:
        refuse_unsafe_inverse(ctx.deployment, self.prior)
        return ctx.deployment.source_prior

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, Plan]:
        prior = mix_with_uniform(batch_prior(ctx, self.prior), self.uniform_share)
        return prior, {"prior": prior}

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        return reweighted(ctx, state)


class OraclePrior(Method[Tensor]):
    """An upper bound under label shift: sees Q_c^t of the current timestep, which everyone else has to estimate."""

    about = Card("deployed model reweighted by the true class prior", "none", oracle=True, keeps_body=True)

    def begin(self, ctx: ClientContext) -> Tensor:
        return ctx.deployment.source_prior

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, Plan]:
        return ctx.prior, {"prior": ctx.prior}

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        return reweighted(ctx, state)
