"""Class prior of an unlabelled batch under label shift: the BBSE family and expectation-maximisation.

Paper Sec. 3 (eq:estimated_risk) writes the prior as M⁻¹ b. It can leave the simplex and explodes when two classes look
alike, so ``simplex_least_squares`` is the default. Every estimator but ``literal_inverse`` returns a distribution.
Linear algebra runs in float64: float32 products may be rounded to TF32 or bfloat16 by the caller's settings.

Axes: *C any client axes, n samples, K classes. M[i, j] = P(predicted i | true j), b the mean prediction of a
batch, μ0 the class prior of the reference data, J = M diag(μ0) the joint confusion matrix.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.kernels import mixture_weights
from fedade.maths.priors import simplex as on_simplex
from fedade.maths.priors.simplex import normalise
from fedade.maths.signals.dynamics import mean_prediction

_SMALLEST_SOURCE_SHARE = 1e-8
_SIMPLEX_RIDGE, _SIMPLEX_STEPS, _RATIO_RIDGE = 1e-3, 400, 1e-8
_RLLS_MAJORISATIONS, _RLLS_STEPS, _RLLS_SMOOTHING = 12, 60, 1e-6
_RLLS_FAILURE = 0.05
"""Probability with which the strength of its regularisation is too small."""


def confusion_matrix(
    probabilities: Float[Tensor, "n K"], labels: Int[Tensor, " n"], soft: bool = True
) -> Float[Tensor, "K K"]:
    """M from held-out labelled data: column j is the mean softmax of class j, or its histogram if not soft.

    A class without samples is assumed to be recognised: its column is the unit vector.

    >>> confusion_matrix(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]]), torch.tensor([0, 0, 1]))[0]
    tensor([0.8500, 0.4000])
    """
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1]:
        raise FedadeError(
            f"probabilities {list(probabilities.shape)} and labels {list(labels.shape)} do not belong together; pass "
            "[n, K] and [n]"
        )
    num_classes = probabilities.shape[-1]
    if labels.is_floating_point() or ((labels < 0) | (labels >= num_classes)).any():
        raise FedadeError(f"labels are not whole numbers from 0 to {num_classes - 1}; number classes from 0")
    classes = torch.arange(num_classes, device=probabilities.device)
    is_class = (labels.unsqueeze(-1) == classes).double()
    predicted = probabilities if soft else probabilities.argmax(-1, keepdim=True) == classes
    counts = is_class.sum(0)
    columns = predicted.double().mT @ is_class / counts.clamp_min(1)
    recognised = torch.diag_embed(torch.ones_like(counts))
    return torch.where(counts > 0, columns, recognised).to(probabilities.dtype)


def is_invertible(confusion: Float[Tensor, "K K"], threshold: float = 1e-3) -> bool:
    """Whether M⁻¹ is safe to use: no empty column and smallest singular value above the threshold."""
    has_empty_column = bool((confusion == 0).all(0).any())
    return not has_empty_column and float(torch.linalg.svdvals(confusion.double())[-1]) > threshold


@dataclass(frozen=True)
class ConfusionFactors:
    """What estimators need of M and μ0, whatever the batch is; each is computed when first asked for."""

    confusion: Float[Tensor, "K K"]
    source_prior: Float[Tensor, " K"]

    @cached_property
    def inverse(self) -> Tensor:
        """M⁺, the pseudo-inverse, which is M⁻¹ where there is one."""
        inverse: Tensor = torch.linalg.pinv(self.confusion.double())
        return inverse

    @cached_property
    def truncated_inverse(self) -> Tensor:
        """M⁺ without the directions of singular values below a hundredth of the largest."""
        inverse: Tensor = torch.linalg.pinv(self.confusion.double(), rtol=1e-2)
        return inverse

    @cached_property
    def ridge_solution(self) -> Tensor:
        """J (JᵀJ + ridge I)⁻¹."""
        solution: Tensor = self.joint @ torch.linalg.inv(_gram(self.joint, _RATIO_RIDGE))
        return solution

    @cached_property
    def simplex(self) -> on_simplex.SimplexFactors:
        """Factors of MᵀM + ridge I, for least squares over the simplex."""
        return on_simplex.simplex_factors(_gram(self.confusion.double(), _SIMPLEX_RIDGE))

    @cached_property
    def joint_spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues and eigenvectors of JᵀJ."""
        values, vectors = torch.linalg.eigh(self.joint.mT @ self.joint)
        return values, vectors

    @cached_property
    def joint(self) -> Tensor:
        return self.confusion.double() * self.source_prior.double()


def literal_inverse(factors: ConfusionFactors, predicted: Float[Tensor, "*C K"]) -> Float[Tensor, "*C K"]:
    """M⁻¹ b as printed (eq:estimated_risk), negative entries included; pseudo-inverse where M is singular."""
    raw: Tensor = predicted.double() @ factors.inverse.mT
    return raw.to(predicted.dtype)


def inverse(factors: ConfusionFactors, predicted: Float[Tensor, "*C K"]) -> Float[Tensor, "*C K"]:
    """M⁻¹ b with negative entries set to 0, rescaled to sum to 1 (Lipton et al., 2018, clipped)."""
    return normalise(literal_inverse(factors, predicted).clamp_min(0), factors.source_prior)


def pseudo_inverse_simplex(factors: ConfusionFactors, predicted: Float[Tensor, "*C K"]) -> Float[Tensor, "*C K"]:
    """Truncated pseudo-inverse, projected to the simplex, mixed with 0.1 % uniform (Bao et al., 2023)."""
    raw = predicted.double() @ factors.truncated_inverse.mT
    return on_simplex.mix_with_uniform(on_simplex.project_to_simplex(raw), 1e-3).to(predicted.dtype)


def ridge_clip(factors: ConfusionFactors, predicted: Float[Tensor, "*C K"]) -> Float[Tensor, "*C K"]:
    """Ratios w from (JᵀJ + 1e-8 I) w = Jᵀb, clipped at 0; the prior is w ∘ μ0 (Baby et al., 2023)."""
    ratios = predicted.double() @ factors.ridge_solution
    return _from_ratios(ratios, factors.source_prior).to(predicted.dtype)


def simplex_least_squares(factors: ConfusionFactors, predicted: Float[Tensor, "*C K"]) -> Float[Tensor, "*C K"]:
    """argmin over the simplex of ‖Mq - b‖² + ridge ‖q - μ0‖²: M⁻¹ b made safe, the default estimator."""
    prior = factors.source_prior.double()
    linear = predicted.double() @ factors.confusion.double() + _SIMPLEX_RIDGE * prior
    return normalise(on_simplex.simplex_quadratic(factors.simplex, linear, _SIMPLEX_STEPS), prior).to(predicted.dtype)


def rlls(factors: ConfusionFactors, predicted: Float[Tensor, "*C K"], num_reference: int) -> Float[Tensor, "*C K"]:
    """argmin over w ≥ 0 of ‖Jw - b‖ + ρ ‖w - 1‖; the prior is w ∘ μ0 (Azizzadenesheli et al., 2019). The norms are not
    squared. Each is majorised by the square that touches it at the last iterate, which leaves a ridge problem per
    client; all of them share the eigenvectors of JᵀJ."""
    joint, target = factors.joint, predicted.double()
    curvatures, basis = factors.joint_spectrum
    strength = _rlls_strength(joint.shape[-1], num_reference)
    # Not from w = 1: there the majorising square of the second norm is too steep to leave quickly.
    ratios = torch.zeros_like(target)
    for _ in range(_RLLS_MAJORISATIONS):
        ridge = strength * _smooth_norm(ratios @ joint.mT - target) / _smooth_norm(ratios - 1)
        linear = target @ joint + ridge
        ratios = on_simplex.nonnegative_quadratic(curvatures.clamp_min(0) + ridge, basis, linear, ratios, _RLLS_STEPS)
    return _from_ratios(ratios, factors.source_prior).to(predicted.dtype)


def posterior_mode(
    probabilities: Float[Tensor, "*C n K"],
    source_mean_prediction: Float[Tensor, " K"],
    pseudo_counts: Float[Tensor, "*#C K"],
    iterations: int = 100,
) -> Float[Tensor, "*C K"]:
    """The most probable prior of a batch, given samples of each class that were counted before (none: the likeliest).

    Expectation-maximisation (Saerens et al., 2002; Alexandari et al., 2020); needs calibrated outputs. Ratios are taken
    to the mean prediction on the reference data, not to its label counts, so that no shift is inferred when there is
    none.
    """
    likelihoods = class_likelihoods(probabilities, source_mean_prediction)
    return posterior_modes(likelihoods, pseudo_counts.unsqueeze(-1), iterations).squeeze(-1)


class ClassLikelihoods(NamedTuple):
    """How likely each sample is under each class, up to a factor, and where fitting a prior begins, in float64."""

    ratios: Float[Tensor, "*C n K"]
    start: Float[Tensor, " K"]
    dtype: torch.dtype
    """Of the outputs that they come from."""


def class_likelihoods(
    probabilities: Float[Tensor, "*C n K"], source_mean_prediction: Float[Tensor, " K"]
) -> ClassLikelihoods:
    """Of a batch of outputs, for `posterior_modes`."""
    # A class that the model never predicts on reference data has no ratio; the floor gives it a finite one.
    source = source_mean_prediction.double().clamp_min(_SMALLEST_SOURCE_SHARE)
    return ClassLikelihoods(probabilities.double() / source, source / source.sum(), probabilities.dtype)


def posterior_modes(
    likelihoods: ClassLikelihoods, pseudo_counts: Float[Tensor, "*#C K P"], iterations: int = 100
) -> Float[Tensor, "*C K P"]:
    """As `posterior_mode`, for several counts at once, each a column."""
    modes = mixture_weights(likelihoods.ratios, pseudo_counts.double(), likelihoods.start, iterations)
    return modes.to(likelihoods.dtype)


EstimatePrior = Callable[[ConfusionFactors, Tensor, Tensor, int], Tensor]
"""From factors of M, a batch's outputs, and the mean output and the number of the reference data."""

ESTIMATORS: Mapping[str, EstimatePrior] = {
    "simplex_ls": lambda factors, batch, _, __: simplex_least_squares(factors, mean_prediction(batch)),
    "inv": lambda factors, batch, _, __: inverse(factors, mean_prediction(batch)),
    "pinv_simplex": lambda factors, batch, _, __: pseudo_inverse_simplex(factors, mean_prediction(batch)),
    "ridge_clip": lambda factors, batch, _, __: ridge_clip(factors, mean_prediction(batch)),
    "rlls": lambda factors, batch, _, number: rlls(factors, mean_prediction(batch), number),
    "mlls": lambda _, batch, source_mean, __: posterior_mode(batch, source_mean, torch.zeros_like(source_mean)),
    # One more sample, of law μ0, keeps every class alive.
    "map_em": lambda factors, batch, source_mean, _: posterior_mode(batch, source_mean, factors.source_prior),
}
"""Every estimator by the name used in configurations."""


def estimate_prior(
    probabilities: Float[Tensor, "*C n K"],
    confusion: Float[Tensor, "K K"],
    source_prior: Float[Tensor, " K"],
    estimator: str = "simplex_ls",
    source_mean_prediction: Float[Tensor, " K"] | None = None,
    num_reference: int = 1000,
    factors: ConfusionFactors | None = None,
) -> Float[Tensor, "*C K"]:
    """Class prior of each batch; give one-hot probabilities for hard predictions.

    The last three are the mean prediction on held-out data (`mlls`, `map_em`; by default the source prior), the number
    of held-out samples (`rlls`), and the factors of M, where it is used again and again.

    >>> estimate_prior(torch.tensor([[0.2, 0.8]]), torch.tensor([[0.9, 0.2], [0.1, 0.8]]), torch.tensor([0.5, 0.5]))
    tensor([0.0010, 0.9990])
    """
    if estimator not in ESTIMATORS:
        raise ValueError(f"prior estimator: {estimator!r} is unknown; choose one of {', '.join(ESTIMATORS)}")
    mean_output = source_prior if source_mean_prediction is None else source_mean_prediction
    # Shapes only: values may be on a GPU, or those of one client of many under vmap.
    outputs, *others = [list(part.shape) for part in (probabilities, confusion, source_prior, mean_output)]
    num_classes = outputs[-1] if len(outputs) > 1 and outputs[-2] else 0
    if not num_classes or others != [[num_classes, num_classes], [num_classes], [num_classes]]:
        raise FedadeError(
            f"probabilities {outputs}, confusion {others[0]}, source_prior {others[1]} and mean prediction {others[2]} "
            "do not belong together; pass [n, K], [K, K], [K] and [K], with n > 0"
        )
    return ESTIMATORS[estimator](
        factors or ConfusionFactors(confusion, source_prior), probabilities, mean_output, num_reference
    )


def _gram(columns: Tensor, ridge: float) -> Tensor:
    return columns.mT @ columns + ridge * torch.eye(len(columns), dtype=columns.dtype, device=columns.device)


def _from_ratios(ratios: Tensor, source_prior: Tensor) -> Tensor:
    prior = source_prior.to(ratios.dtype)
    return normalise(ratios.clamp_min(0) * prior, prior)


def _rlls_strength(num_classes: int, num_reference: int) -> float:
    deviation = 2 * math.log(2 * num_classes / _RLLS_FAILURE) / num_reference
    return 0.01 * 3 * (deviation / 3 + math.sqrt(deviation))


def _smooth_norm(vectors: Tensor) -> Tensor:
    return (vectors.square().sum(-1, keepdim=True) + _RLLS_SMOOTHING**2).sqrt()
