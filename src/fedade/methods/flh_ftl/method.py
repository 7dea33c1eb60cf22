"""FLH-FTL (Baby et al., NeurIPS 2023): track the class prior with windows of all lengths, weighted by their forecasts.

Reweights the frozen classifier by a mix of running means of estimated priors, one mean per start time, so that it
remembers far back while nothing changes and forgets after a change. The pool is pruned to O(K log T).

Corrupted inputs look like a change of classes to it.
"""

from pydantic import Field
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, Method, Plan
from fedade.maths.priors.simplex import mix_with_uniform
from fedade.methods.flh_ftl.leading_history import LeadingHistory, follow, forecast, no_history
from fedade.parts.priors import Estimator, batch_prior, refuse_unsafe_inverse
from fedade.parts.reweighting import UNIFORM_SHARE, reweighted


class FlhFtl(Method[LeadingHistory]):
    """Frozen classifier times a class prior tracked over all window lengths."""

    prior: Estimator = "simplex_ls"
    horizon: int = Field(100, ge=1)
    """T: windows as long as this are kept; a longer stream is fine."""
    forecast_rate: float | None = Field(None, gt=0)
    """α: how fast bad forecasts cost an expert its weight; None: the published 1/K."""
    uniform_share: float = Field(UNIFORM_SHARE, ge=0, le=1)
    """Share of the uniform distribution in the forecast."""

    @property
    def card(self) -> Card:
        return Card(
            summary="deployed model reweighted by a class prior tracked over all window lengths",
            paper="Baby et al., NeurIPS 2023",
            reweights=True,
            keeps_body=True,
        )

    def begin(self, ctx: ClientContext) -> LeadingHistory:
        """No expert yet."""
        refuse_unsafe_inverse(ctx.deployment, self.prior)
        return no_history(self.horizon, ctx.deployment.source_prior)

    def observe(self, ctx: ClientContext, state: LeadingHistory) -> tuple[LeadingHistory, Plan]:
        """Weigh the experts by how they forecast this batch's prior, then let them all learn it."""
        estimate = batch_prior(ctx, self.prior)
        history = follow(state, estimate, self.forecast_rate or 1 / ctx.deployment.num_classes)
        return history, {"prior": self._forecast(ctx.deployment, history)}

    def predict(self, ctx: ClientContext, state: LeadingHistory) -> Tensor:
        return reweighted(ctx, self._forecast(ctx.deployment, state))

    def _forecast(self, deployment: Deployment, history: LeadingHistory) -> Tensor:
        return mix_with_uniform(forecast(history, deployment.source_prior), self.uniform_share)
