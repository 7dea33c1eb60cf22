"""Optimal transport between class distributions. Axes: K classes, d features."""

import torch
from jaxtyping import Float
from torch import Tensor

from fedade.maths.signals.directions import directions

BLUR = 0.05
"""Entropic regularisation, as a share of the largest cost."""
ITERATIONS = 100


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
