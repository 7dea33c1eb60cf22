"""Fed-ADE+ with a server that remembers conditions for all clients: residual statistics of layers that tell no classes
apart. A client that meets a condition for the first time, or with few samples, starts from what others know of it.

A client reports what a batch left unexplained in these layers (`class_moments.py`), in units of a sample's deviation,
with the number of samples behind it: no image, label or gradient. The server puts a report to the remembered condition
that it agrees with as far as chance explains, or begins another with it, and tells everybody all conditions. They
stand beside a client's own when it recognises a batch, so that nothing is taken from one that the batch does not
resemble. One exchange a timestep is enough; class distributions, predictions and weights stay with the client.

Axes: P reports, S shared conditions, M own conditions, 2 moments, C channels of the layers, L layers.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from fedade.core.method import Card, ClientContext, Deployment, Plan, RoundContext, Shared
from fedade.core.tree import Tree
from fedade.maths.counter import normal
from fedade.methods.fed_ade_plus.class_moments import LayerGroup, expected_under, layer_groups, measured_once
from fedade.methods.fed_ade_plus.conditions import FEWEST_SAMPLES, NEW, Report, Residual, positive
from fedade.methods.fed_ade_plus.corrected_normalisation import Corrected
from fedade.methods.fed_ade_plus.layer_statistics import Residuals
from fedade.methods.fed_ade_plus.method import FedAdePlus, FedAdePlusClient
from fedade.methods.fed_ade_plus.regimes import Reading

RESIDUAL, COUNT = "residual", "count"
"""Names of what a client sends."""
SIZES, SAMPLES = "condition_sizes", "condition_samples"
"""Names of what the server tells."""
MOST_BYTES = 90_000
"""Of all conditions together."""
MOST_CONDITIONS = 64
MOST_REPORTED = 100.0
"""Samples that a report counts for at most, whatever its client says."""
MOST_REMEMBERED = 400.0
"""Samples that a shared condition counts for at most, so that it can still follow."""
LASTING = 0.995
"""Share of its samples that a shared condition keeps from one exchange to the next."""
GREATEST = 3.0
"""Root mean square of a report at most, in units of a sample's deviation."""
SENT = torch.float16
"""Precision of what the server tells: far finer than a few hundred samples are."""


@measured_once
def deviation(deployment: Deployment) -> Float[Tensor, "2 C"]:
    """How much a sample's moments vary under the source prior: the unit of all that is exchanged."""
    spreads = [expected_under(deployment.source_prior, group.moments).spread for group in layer_groups(deployment)]
    return positive(torch.cat(spreads, -1)).sqrt()


def none_yet(deployment: Deployment) -> Shared:
    """Room for conditions; of those that nobody met the size says nothing."""
    unit = deviation(deployment)
    room = max(2, min(MOST_CONDITIONS, MOST_BYTES // (SENT.itemsize * unit.numel() + 4)))
    return {SIZES: unit.new_ones(room, *unit.shape, dtype=SENT), SAMPLES: unit.new_zeros(room)}


def beside_own(deployment: Deployment, own: Residuals, shared: Shared, memory: float) -> Residuals:
    """A client's conditions and after them those of all, which count for no more samples than its own may."""
    unit, groups = deviation(deployment), layer_groups(deployment)
    sizes = torch.split(shared[SIZES].to(unit.dtype) * unit, [len(group.layer_of_channel) for group in groups], -1)
    samples = shared[SAMPLES].clamp(max=memory)[:, None, None]
    return tuple(
        Residual(
            torch.cat([mine.size, common.to(mine.size.dtype)]),
            torch.cat([mine.samples, samples.expand(-1, *mine.samples.shape[1:]).to(mine.samples.dtype)]),
        )
        for mine, common in zip(own, sizes, strict=True)
    )


def own_of(found: Residuals, before: Residuals, number: int) -> Residuals:
    """The client's own conditions of those `beside_own`; a common one that a batch came in takes the least known."""
    moved = (found[0].size != before[0].size).flatten(1).any(-1)  # the condition that the batch came in
    place = moved.to(torch.int64).argmax(-1, keepdim=True)
    own = Residual(*(values[:number] for values in found[0]))
    least = own.samples.mean((-2, -1)).argmin(-1, keepdim=True)
    here = (torch.arange(number, device=least.device) == least) & (place >= number)
    pairs = zip(found[0], own, strict=True)
    kept = (torch.where(here[:, None, None], values.index_select(0, place), mine) for values, mine in pairs)
    return (Residual(*kept), *found[1:])


def reported(deployment: Deployment, unsent: Report, corrected: Corrected, prior: Tensor, least: int) -> Report:
    """What is to be told after a batch: it and what was seen since the last report, until these are enough samples."""
    samples = len(corrected.logits)
    left = torch.cat([_unexplained(group, corrected, prior) for group in layer_groups(deployment)], -1)
    before = torch.where(unsent.samples < least, unsent.samples, 0.0)
    count = before + samples
    return Report((before * unsent.residual + samples * left / deviation(deployment)) / count, count)


def _unexplained(group: LayerGroup, corrected: Corrected, prior: Tensor) -> Float[Tensor, "2 C"]:
    seen = torch.cat([corrected.seen[layer].moments for layer in group.channels], -1)
    return seen - expected_under(prior.to(seen.dtype), group.moments).mean


def bounded(report: Report, noise: Float[Tensor, "2 C"] | None, scale: float) -> Report:
    """A report no longer than it may be, blurred by noise of this scale, which counts for fewer samples then."""
    residual = _clipped(report.residual)
    if noise is not None:
        residual = residual + scale * noise
    samples = report.samples.clamp(max=MOST_REPORTED)
    return Report(residual, samples / (1 + samples * scale**2))


def _clipped(residual: Float[Tensor, "2 C"]) -> Float[Tensor, "2 C"]:
    return residual * (GREATEST / positive(residual.square().mean()).sqrt()).clamp(max=1)


def merged(deployment: Deployment, shared: Shared, reports: Report) -> tuple[Shared, Int[Tensor, " P"]]:
    """What the server knows after some reports, one after the other, and the place of each one's condition, which the
    recognising layers say. Reports without samples, and those that are no numbers, change nothing."""
    recognising = len(layer_groups(deployment)[0].layer_of_channel)
    sizes, samples = shared[SIZES].float(), shared[SAMPLES] * LASTING
    numbers, places = torch.arange(len(samples), device=samples.device), []
    for residual, told in zip(*reports, strict=True):
        count = torch.where(residual.isfinite().all() & told.isfinite(), told, 0.0).clamp(0, MOST_REPORTED)
        clipped = _clipped(residual.nan_to_num(0.0, 0.0, 0.0))
        width = 1 / count.clamp(min=FEWEST_SAMPLES) + 1 / samples.clamp(min=FEWEST_SAMPLES)
        ratio = (clipped - sizes)[..., :recognising].square().mean((-2, -1)) / width
        nearest = (ratio + width.log()).argmin(-1, keepdim=True)
        known = ratio.index_select(0, nearest) <= NEW
        place = torch.where(known, nearest, samples.argmin(-1, keepdim=True))
        here = (numbers == place) & (count > 0)
        before = torch.where(known, samples, 0.0)
        after = (before[:, None, None] * sizes + count * clipped) / positive(before + count)[:, None, None]
        sizes = torch.where(here[:, None, None], after, sizes)
        samples = torch.where(here, (before + count).clamp(max=MOST_REMEMBERED), samples)
        places.append(place)
    return {SIZES: sizes.to(SENT), SAMPLES: samples}, torch.cat(places)


class FedAdePlusFederated(FedAdePlus):
    """Fed-ADE+ whose clients share conditions."""

    least_reported: int = Field(10, ge=1)
    """A client tells nothing of fewer samples than these: it waits until it has seen as many. Batches of fewer are put
    to the client's own conditions alone."""
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
        nothing = (torch.zeros_like(like) for like in (deviation(ctx.deployment), ctx.deployment.source_prior[0]))
        return super().begin(ctx)._replace(report=Report(*nothing))

    def begin_server(self, deployment: Deployment) -> Shared:
        return none_yet(deployment)

    def local_round(
        self, ctx: RoundContext, state: FedAdePlusClient, plan: Plan
    ) -> tuple[FedAdePlusClient, Plan, dict[str, Tensor]]:
        report = Report(*state.report)
        enough = report.samples >= self.least_reported
        told = Report(*(enough * value for value in report))
        noise = normal(ctx.key, tuple(told.residual.shape)) if self.report_noise else None
        told = bounded(told, noise, self.report_noise)
        unsent = Report(*((~enough) * value for value in report))
        return state._replace(report=unsent), plan, {RESIDUAL: told.residual, COUNT: told.samples}

    def aggregate(
        self, deployment: Deployment, shared: Shared, uplinks: dict[str, Tensor], weights: Tensor
    ) -> tuple[Shared, Tree]:
        """The conditions that all are told, and each participant the place of its own."""
        return merged(deployment, shared, Report(uplinks[RESIDUAL], uplinks[COUNT]))

    def personalise(self, ctx: RoundContext, state: FedAdePlusClient, plan: Plan) -> tuple[FedAdePlusClient, Plan]:
        return state, plan

    def _model(self, ctx: ClientContext, state: FedAdePlusClient) -> dict[str, Tensor]:
        return dict(ctx.deployment.parameters)

    def _shares(self, deployment: Deployment) -> bool:
        return self.correction != "none" and layer_groups(deployment)[0].recognises

    def _asks(self, ctx: ClientContext) -> bool:
        """Whether the conditions of all are looked at. Fewer samples than a report has say too little of which they
        came in: single ones were answered worse with them than without."""
        return self._shares(ctx.deployment) and len(ctx.inputs) >= self.least_reported

    def _past(self, ctx: ClientContext, state: FedAdePlusClient) -> Residuals:
        own = super()._past(ctx, state)
        return beside_own(ctx.deployment, own, dict(ctx.shared), self.memory) if self._asks(ctx) else own

    def _learnt(
        self, ctx: ClientContext, state: FedAdePlusClient, corrected: Corrected, reading: Reading
    ) -> FedAdePlusClient:
        if not self._shares(ctx.deployment):
            return super()._learnt(ctx, state, corrected, reading)
        found, unsent = corrected.residuals, Report(*state.report)
        return state._replace(
            residuals=own_of(found, self._past(ctx, state), self.conditions) if self._asks(ctx) else found,
            report=reported(ctx.deployment, unsent, corrected, reading.prior, self.least_reported),
        )
