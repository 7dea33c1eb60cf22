"""How much predictions may be biased that were made before any layer was corrected.

Corrupted inputs bias predictions, which looks like a change of classes. Layers tell the two apart: other classes would
have moved them in a known way (`class_moments.py`).
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.methods.fed_ade_plus.class_moments import expected_under
from fedade.methods.fed_ade_plus.conditions import squared_ratio
from fedade.methods.fed_ade_plus.layer_statistics import SeenLayer
from fedade.methods.fed_ade_plus.reference_moments import reference_moments

FEATURE_BIAS = 8.0
"""How much more predictions may be biased where only features are corrected: the layers before them still see inputs as
they were never trained on."""
UNCORRECTED_BIAS, CONVINCING = 16.0, 6
"""The same where no layer is corrected before the classes are known, if these explain nothing of what the layers show;
and the power by which it falls with what they explain."""


def uncorrected_bias(
    deployment: Deployment, seen: Mapping[str, SeenLayer], prior: Float[Tensor, " K"]
) -> Float[Tensor, ""]:
    """How much more predictions may be biased that speak for this prior, by what it leaves of the layers' change."""
    return UNCORRECTED_BIAS * unexplained(deployment, seen, prior) ** CONVINCING


def unexplained(deployment: Deployment, seen: Mapping[str, SeenLayer], prior: Float[Tensor, " K"]) -> Float[Tensor, ""]:
    """Share of the squared changes since deployment that other classes leave in the layers, at most 1."""
    shares = []
    for layer, moments in reference_moments(deployment).items():
        source, other = (expected_under(q.to(moments.within.dtype), moments) for q in (deployment.source_prior, prior))
        shown = seen[layer].moments
        left, change = (squared_ratio(shown - mean, source.spread).mean() for mean in (other.mean, source.mean))
        shares.append((left / change).clamp(max=1))
    return torch.stack(shares).mean()
