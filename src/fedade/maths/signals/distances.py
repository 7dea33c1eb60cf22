"""How far two class distributions, or two sets of unit vectors, lie apart: in [0, 1], and 0 for equal inputs.

The paper's cosine distance stands in `dynamics`. Axes: *C any client axes, K classes, m and n samples, d features,
u directions.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from fedade.maths.signals.dynamics import directions

SMOOTHING = 1e-3
"""Added to every class before a logarithm; bounds KL by ln((1 + ε) / ε) = 6.91."""

BLUR = 0.05
"""Entropic regularisation, as a share of the largest cost."""

ITERATIONS = 100


def kl_distance(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """1 - e^-KL(previous ‖ current), Kullback and Leibler (1951), of smoothed distributions; not symmetric."""
    return _saturating(_kl_divergence(_smoothed(previous), _smoothed(current)))


def jeffreys_distance(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """1 - e^-J, with J the mean of both directions of KL (Jeffreys, 1946)."""
    first, second = _smoothed(previous), _smoothed(current)
    return _saturating((_kl_divergence(first, second) + _kl_divergence(second, first)) / 2)


def jensen_shannon(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """Jensen-Shannon divergence in bits (Lin, 1991)."""
    middle = (previous + current) / 2
    possible = torch.where(middle > 0, middle, torch.ones_like(middle))
    nats = (torch.xlogy(previous, previous / possible) + torch.xlogy(current, current / possible)).sum(-1) / 2
    return (nats / math.log(2)).clamp(0, 1)


def hellinger(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """√(1 - Σ√(ab)), Hellinger (1909): linear in small changes, where the cosine distance is quadratic."""
    # Half the squared chord of the roots equals 1 - Σ√(ab) without its cancellation near 0.
    return ((previous.sqrt() - current.sqrt()).square().sum(-1) / 2).clamp(0, 1).sqrt()


def total_variation(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """½‖a - b‖₁: the step of the path length in the paper's regret bound; Wasserstein with cost 1 between classes."""
    return ((previous - current).abs().sum(-1) / 2).clamp(0, 1)


def index_wasserstein(previous: Float[Tensor, "*C K"], current: Float[Tensor, "*C K"]) -> Float[Tensor, "*C"]:
    """Wasserstein-1 with cost |i - j| / (K - 1): meaningful only where the order of the classes is."""
    moved = (previous - current).cumsum(-1)[..., :-1].abs().sum(-1)
    return (moved / max(1, previous.shape[-1] - 1)).clamp(0, 1)


def without_noise_floor(
    distance: Float[Tensor, "*C"], previous_floor: Float[Tensor, "*C"], floor: Float[Tensor, "*C"]
) -> Float[Tensor, "*C"]:
    """max(0, S - (s' + s) / 4): what a distance of two batches shows beyond the noise of finite batches. A floor s is
    the distance of two random halves of one batch. It holds twice the noise of two whole batches where noise grows as
    1/n; for distances that are linear in small changes it is √2 times, and 0.3 of the floor remains."""
    return (distance - (previous_floor + floor) / 4).clamp_min(0)


def _smoothed(distribution: Tensor) -> Tensor:
    return (distribution + SMOOTHING) / (1 + distribution.shape[-1] * SMOOTHING)


def _kl_divergence(first: Tensor, second: Tensor) -> Tensor:
    return (first * (first / second).log()).sum(-1).clamp_min(0)


def _saturating(divergence: Tensor) -> Tensor:
    return -torch.expm1(-divergence)


def sliced_wasserstein(
    first: Float[Tensor, "*C m d"], second: Float[Tensor, "*C m d"], directions: Float[Tensor, "u d"]
) -> Float[Tensor, "*C"]:
    """Mean Wasserstein-1 distance of the projections (Bonneel et al., 2015), as a share of its largest value. Two
    opposite clusters have the largest, 2 E|u₁| for a uniform direction u; it vanishes as 1/√d, so dividing by 2 alone
    would leave 0.07 of the range at d = 128."""
    from_first, from_second = ((samples @ directions.T).sort(-2).values for samples in (first, second))
    moved = (from_first - from_second).abs().mean((-2, -1))
    return (moved / (2 * mean_coordinate(directions.shape[-1]))).clamp(0, 1)


def mean_coordinate(dimension: int) -> float:
    """E|u₁| of a uniform direction: Γ(d/2) / (√π Γ((d + 1)/2))."""
    return math.exp(math.lgamma(dimension / 2) - math.lgamma((dimension + 1) / 2)) / math.sqrt(math.pi)


def kernel_discrepancy(first: Float[Tensor, "*C m d"], second: Float[Tensor, "*C n d"]) -> Float[Tensor, "*C"]:
    """√(MMD² / 2), biased, with k(x, y) = exp(-‖x - y‖² / median): Gretton et al. (2012)."""
    m, both = first.shape[-2], torch.cat([first, second], -2)
    squared = _distances(both, both).square()
    row, column = torch.triu_indices(both.shape[-2], both.shape[-2], offset=1, device=both.device)
    apart = squared[..., row, column]
    # Repeated samples may put the median at 0, where the kernel would tell nothing apart.
    median, mean = apart.median(-1).values, apart.mean(-1)
    width = torch.where(median > 0, median, torch.where(mean > 0, mean, torch.ones_like(mean)))
    kernel = torch.exp(-squared / width[..., None, None])
    within = kernel[..., :m, :m].mean((-2, -1)) + kernel[..., m:, m:].mean((-2, -1))
    return ((within - 2 * kernel[..., :m, m:].mean((-2, -1))) / 2).clamp(0, 1).sqrt()


def energy_distance(first: Float[Tensor, "*C m d"], second: Float[Tensor, "*C n d"]) -> Float[Tensor, "*C"]:
    """(2E|XY| - E|XX'| - E|YY'|) / 2E|XY|, Székely and Rizzo (2013): no parameter to choose."""
    across, within_first, within_second = (
        _distances(left, right).mean((-2, -1)) for left, right in ((first, second), (first, first), (second, second))
    )
    total = torch.where(across > 0, 2 * across, torch.ones_like(across))
    return ((2 * across - within_first - within_second) / total).clamp(0, 1)


def _distances(first: Tensor, second: Tensor) -> Tensor:
    # Differences rather than a matrix product, whose cancellation leaves equal samples apart.
    return torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")


def class_costs(rows: Float[Tensor, "K d"]) -> Float[Tensor, "K K"]:
    """½(1 - cos(w_i, w_j)) of the classifier's rows, as shares of the largest: classes that look alike are close."""
    units = directions(rows)
    costs = ((1 - units @ units.T) / 2).clamp(0, 1) * (1 - torch.eye(len(rows), device=rows.device))
    return costs / torch.where(costs.max() > 0, costs.max(), torch.ones_like(costs.max()))


def sinkhorn_divergence(
    previous: Float[Tensor, " K"], current: Float[Tensor, " K"], costs: Float[Tensor, "K K"]
) -> Float[Tensor, ""]:
    """OT_ε(a, b) - ½OT_ε(a, a) - ½OT_ε(b, b) for costs in [0, 1], clipped to [0, 1] (Feydy et al., 2019)."""
    # Side by side: the iteration is many small operations, which cost as much for one problem as for three.
    sources, targets = torch.stack([previous, previous, current]), torch.stack([current, previous, current])
    transport: Tensor = _transport_costs(sources, targets, costs)
    across, first, second = transport[0], transport[1], transport[2]
    return (across - (first + second) / 2).clamp(0, 1)


def _transport_costs(sources: Tensor, targets: Tensor, costs: Tensor) -> Tensor:
    """OT_ε by Sinkhorn's iteration on the dual potentials, in the log domain (Peyré and Cuturi, 2019, Sec. 4.4)."""
    tiny = torch.finfo(costs.dtype).tiny
    log_sources, log_targets = sources.clamp_min(tiny).log()[:, :, None], targets.clamp_min(tiny).log()[:, None, :]
    kernel = -costs / BLUR
    source_dual, target_dual = torch.zeros_like(log_sources), torch.zeros_like(log_targets)
    for _ in range(ITERATIONS):
        source_dual = -torch.logsumexp(kernel + (log_targets + target_dual), 2, keepdim=True)
        target_dual = -torch.logsumexp(kernel + (log_sources + source_dual), 1, keepdim=True)
    return BLUR * ((sources * source_dual[:, :, 0]).sum(1) + (targets * target_dual[:, 0]).sum(1))
