"""The class distribution of an unlabelled batch, as one client estimates it."""

from typing import Literal

from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.maths.calibration import apply_temperature
from fedade.maths.priors import estimate

Estimator = Literal["simplex_ls", "inv", "pinv_simplex", "ridge_clip", "rlls", "mlls", "map_em"]


def deployed_probabilities(deployment: Deployment, inputs: Tensor) -> Tensor:
    """Calibrated predictions of the frozen deployed model, to which the confusion matrix belongs."""
    logits = deployment.network.logits(deployment.parameters, inputs)
    return apply_temperature(logits, deployment.temperature).softmax(-1)


def batch_prior(deployment: Deployment, inputs: Tensor, estimator: Estimator) -> Tensor:
    """M⁻¹q̂ (paper Sec. 3), by an estimator that stays on the simplex."""
    return estimate(
        estimator,
        deployed_probabilities(deployment, inputs),
        deployment.confusion,
        deployment.source_prior,
        deployment.mean_prediction,
        len(deployment.reference.labels),
    )
