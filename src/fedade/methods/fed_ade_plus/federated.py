"""Fed-ADE+ with a server that remembers the conditions that inputs come in (`shared_conditions.py`).

A client that meets a condition for the first time, or with few samples, starts from what others know of it. One
exchange a timestep is enough; class distributions, predictions and weights stay with the client.
"""

from dataclasses import replace

from pydantic import Field, model_validator
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, Plan, RoundContext, Shared
from fedade.core.tree import Tree
from fedade.maths.counter import normal
from fedade.methods.fed_ade_plus import shared_conditions
from fedade.methods.fed_ade_plus.corrected_normalisation import Corrected
from fedade.methods.fed_ade_plus.layer_statistics import Residuals
from fedade.methods.fed_ade_plus.method import FedAdePlus, FedAdePlusClient
from fedade.methods.fed_ade_plus.regimes import Reading
from fedade.methods.fed_ade_plus.shared_conditions import Report

RESIDUAL, COUNT = "residual", "count"
"""Names of what a client sends."""


class FedAdePlusFederated(FedAdePlus):
    """Fed-ADE+ whose clients share conditions."""

    least_reported: int = Field(10, ge=1)
    """A client tells nothing of fewer samples than these: it waits until it has seen as many."""
    report_noise: float = Field(0.0, ge=0)
    """Standard deviation of Gaussian noise on each number of a report, in units of a sample's own."""

    @model_validator(mode="after")
    def _refuse_gradient_steps(self) -> "FedAdePlusFederated":
        if self.gradient_steps:
            raise ValueError("gradient steps share layers, not conditions; set gradient_steps of fed-ade-plus")
        return self

    @property
    def card(self) -> Card:
        return replace(super().card, summary="fed-ade-plus with a server that remembers the conditions of inputs")

    @property
    def has_rounds(self) -> bool:
        return True

    def begin(self, ctx: ClientContext) -> FedAdePlusClient:
        return super().begin(ctx)._replace(report=shared_conditions.no_report(ctx.deployment))

    def begin_server(self, deployment: Deployment) -> Shared:
        return shared_conditions.none_yet(deployment)

    def local_round(
        self, ctx: RoundContext, state: FedAdePlusClient, plan: Plan
    ) -> tuple[FedAdePlusClient, Plan, dict[str, Tensor]]:
        report = Report(*state.report)
        enough = report.samples >= self.least_reported
        told = Report(*(enough * value for value in report))
        noise = normal(ctx.key, tuple(told.residual.shape)) if self.report_noise else None
        told = shared_conditions.bounded(told, noise, self.report_noise)
        unsent = Report(*((~enough) * value for value in report))
        return state._replace(report=unsent), plan, {RESIDUAL: told.residual, COUNT: told.samples}

    def aggregate(
        self, deployment: Deployment, shared: Shared, uplinks: dict[str, Tensor], weights: Tensor
    ) -> tuple[Shared, Tree]:
        """The conditions that all are told, and each participant the place of its own."""
        return shared_conditions.merged(deployment, shared, Report(uplinks[RESIDUAL], uplinks[COUNT]))

    def personalise(self, ctx: RoundContext, state: FedAdePlusClient, plan: Plan) -> tuple[FedAdePlusClient, Plan]:
        return state, plan

    def _model(self, ctx: ClientContext, state: FedAdePlusClient) -> dict[str, Tensor]:
        return dict(ctx.deployment.parameters)

    def _shares(self, deployment: Deployment) -> bool:
        return self.correction != "none" and shared_conditions.can_share(deployment)

    def _past(self, ctx: ClientContext, state: FedAdePlusClient) -> Residuals:
        own = super()._past(ctx, state)
        if not self._shares(ctx.deployment):
            return own
        return shared_conditions.beside_own(ctx.deployment, own, dict(ctx.shared), self.memory)

    def _learnt(
        self, ctx: ClientContext, state: FedAdePlusClient, corrected: Corrected, reading: Reading
    ) -> FedAdePlusClient:
        if not self._shares(ctx.deployment):
            return super()._learnt(ctx, state, corrected, reading)
        past, unsent = self._past(ctx, state), Report(*state.report)
        return state._replace(
            residuals=shared_conditions.own_of(corrected.residuals, past, self.conditions),
            report=shared_conditions.reported(ctx.deployment, unsent, corrected, reading.prior, self.least_reported),
        )
