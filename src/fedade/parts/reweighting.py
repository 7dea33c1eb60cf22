"""Predictions of methods that adapt a class prior and no weight of the network."""

from torch import Tensor

from fedade.core.context import ClientContext
from fedade.maths.priors.reweighting import reweight
from fedade.parts.priors import deployed_probabilities

UNIFORM_SHARE = 1e-3
"""Share of the uniform distribution in an estimated prior, so that no class is ruled out (Bao et al., 2023)."""


def reweighted(ctx: ClientContext, prior: Tensor) -> Tensor:
    """The deployed model's calibrated posterior under another class prior: p(x) ∘ q / μ0, normalised."""
    return reweight(deployed_probabilities(ctx), prior, ctx.deployment.source_prior)
