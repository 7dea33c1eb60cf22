"""An upper bound under label shift: the deployed model's posterior, reweighted by the true class prior."""

from torch import Tensor

from fedade.core.method import Card, ClientContext, Method, Plan
from fedade.parts.priors import reweighted


class OraclePrior(Method[Tensor]):
    """Sees Q_c^t of the current timestep; everyone else has to estimate it."""

    about = Card(
        summary="deployed model reweighted by the true class prior", paper="none", oracle=True, keeps_body=True
    )

    def begin(self, ctx: ClientContext) -> Tensor:
        return ctx.deployment.source_prior

    def observe(self, ctx: ClientContext, state: Tensor) -> tuple[Tensor, Plan]:
        return ctx.prior, {"prior": ctx.prior}

    def predict(self, ctx: ClientContext, state: Tensor) -> Tensor:
        return reweighted(ctx, state)
