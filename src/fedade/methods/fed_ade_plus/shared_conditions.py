"""Conditions that a server remembers for all clients: residual statistics of layers that tell no classes apart.

A client reports what a batch left unexplained in these layers (`class_moments.py`), in units of a sample's deviation,
with the number of samples behind it: no image, label or gradient. The server puts a report to the remembered condition
that it agrees with as far as chance explains, or begins another with it, and tells everybody all conditions. They
stand beside a client's own when it recognises a batch, so that nothing is taken from one that the batch does not
resemble.

Axes: P reports, S shared conditions, M own conditions, 2 moments, C channels of the layers, L layers.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedade.core.method import Deployment, Shared
from fedade.methods.fed_ade_plus.class_moments import LayerGroup, expected_under, layer_groups, measured_once
from fedade.methods.fed_ade_plus.conditions import FEWEST_SAMPLES, NEW, Residual, positive
from fedade.methods.fed_ade_plus.corrected_normalisation import Corrected
from fedade.methods.fed_ade_plus.layer_statistics import Residuals

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


class Report(NamedTuple):
    """What batches left unexplained in all layers, of which nobody was told yet."""

    residual: Float[Tensor, "2 C"]
    samples: Float[Tensor, ""]


def can_share(deployment: Deployment) -> bool:
    """Whether there are layers that say what condition a batch came in."""
    return layer_groups(deployment)[0].recognises


@measured_once
def deviation(deployment: Deployment) -> Float[Tensor, "2 C"]:
    """How much a sample's moments vary under the source prior: the unit of all that is exchanged."""
    spreads = [expected_under(deployment.source_prior, group.moments).spread for group in layer_groups(deployment)]
    return positive(torch.cat(spreads, -1)).sqrt()


def no_report(deployment: Deployment) -> Report:
    return Report(torch.zeros_like(deviation(deployment)), torch.zeros_like(deployment.source_prior[0]))


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
