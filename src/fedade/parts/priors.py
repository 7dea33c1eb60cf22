"""The class distribution of an unlabelled batch, as one client estimates it."""

from typing import Literal

from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.maths.calibration import apply_temperature
from fedade.maths.priors import estimate_prior, is_invertible

Estimator = Literal["simplex_ls", "inv", "pinv_simplex", "ridge_clip", "rlls", "mlls", "map_em"]


def deployed_probabilities(deployment: Deployment, inputs: Tensor) -> Tensor:
    """Calibrated predictions of the frozen deployed model, to which the confusion matrix belongs."""
    logits = deployment.network.logits(deployment.parameters, inputs)
    return apply_temperature(logits, deployment.temperature).softmax(-1)


def batch_prior(deployment: Deployment, inputs: Tensor, estimator: Estimator) -> Tensor:
    """M⁻¹q̂ (paper Sec. 3), by an estimator that stays on the simplex."""
    return estimate_prior(
        deployed_probabilities(deployment, inputs),
        deployment.confusion,
        deployment.source_prior,
        estimator,
        deployment.mean_prediction,
        len(deployment.reference.labels),
    )


def refuse_unsafe_inverse(deployment: Deployment, estimator: Estimator) -> None:
    """The literal M⁻¹ is for comparison only, and only where it is not close to dividing by zero."""
    if estimator == "inv" and not is_invertible(deployment.confusion):
        raise FedadeError(
            "method.prior: 'inv' needs an invertible confusion matrix and this one is (nearly) singular; use simplex_ls"
        )
