"""The class distribution of an unlabelled batch, as one client estimates it, and predictions corrected by it."""

from typing import Literal

from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.core.method import ClientContext, Deployment
from fedade.maths.priors.estimators import ConfusionFactors, estimate_prior, is_invertible
from fedade.maths.priors.reweighting import apply_temperature, reweight

Estimator = Literal["simplex_ls", "inv", "pinv_simplex", "ridge_clip", "rlls", "mlls", "map_em"]

UNIFORM_SHARE = 1e-3
"""Share of the uniform distribution in an estimated prior, so that no class is ruled out (Bao et al., 2023)."""


def deployed_probabilities(ctx: ClientContext) -> Tensor:
    """Calibrated predictions of the frozen deployed model on the batch; the confusion matrix belongs to them."""
    return calibrated_probabilities(ctx.deployment, ctx.deployed_features())


def calibrated_probabilities(deployment: Deployment, features: Tensor) -> Tensor:
    """What the deployed head, calibrated, makes of features."""
    logits = deployment.network.classify(deployment.parameters, features)
    return apply_temperature(logits, deployment.temperature).softmax(-1)


def batch_prior(ctx: ClientContext, estimator: Estimator) -> Tensor:
    """M⁻¹q̂ (paper Sec. 3), by an estimator that stays on the simplex."""
    return prior_from(ctx, deployed_probabilities(ctx), estimator)


def prior_from(ctx: ClientContext, probabilities: Tensor, estimator: Estimator) -> Tensor:
    """The class prior behind predictions of the deployed model, `[n, K]`."""
    known, factors = ctx.deployment, ctx.deployment.constant(_confusion_factors)
    usual, count = known.mean_prediction, len(known.reference.labels)
    return estimate_prior(probabilities, known.confusion, known.source_prior, estimator, usual, count, factors)


def refuse_unsafe_inverse(deployment: Deployment, estimator: Estimator) -> None:
    """The literal M⁻¹ is for comparison only, and only where it is not close to dividing by zero."""
    if estimator == "inv" and not is_invertible(deployment.confusion):
        raise FedadeError(
            "prior: 'inv' needs an invertible confusion matrix and this one is (nearly) singular; use simplex_ls"
        )


def _confusion_factors(deployment: Deployment) -> ConfusionFactors:
    return ConfusionFactors(deployment.confusion, deployment.source_prior)


def reweighted(ctx: ClientContext, prior: Tensor) -> Tensor:
    """The deployed model's calibrated posterior under another class prior: p(x) ∘ q / μ0, normalised."""
    return reweight(deployed_probabilities(ctx), prior, ctx.deployment.source_prior)
