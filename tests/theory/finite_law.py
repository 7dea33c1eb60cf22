"""A law of few inputs and classes, whose every batch can be counted: expectations without any sampling.

`python -m tests.theory.finite_law` prints docs/results/lemma1.csv.
"""

import math
import sys
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from fedade.maths.losses import class_weights, estimated_risk
from fedade.maths.priors.estimators import ConfusionFactors, confusion_matrix, literal_inverse, simplex_least_squares

COUNTS = torch.tensor([[6, 1, 2, 1], [1, 6, 1, 2], [2, 1, 3, 4]])
"""Of ten inputs of a class, how many look like each of four: the same before and after a label shift."""
LAW = COUNTS.double() / 10
"""P(x | y)"""
DEPLOYED = torch.tensor([[2.0, 0.0, 0.2], [0.1, 1.8, 0.0], [0.9, -0.4, 0.6], [-0.3, 0.5, 1.1]]).double()
"""Logits of the deployed model, by input: the model of which M is known."""
ADAPTED = torch.tensor([[1.2, 0.3, -0.5], [-0.2, 2.2, 0.4], [0.1, 0.0, 1.5], [-1.0, 0.2, 1.9]]).double()
"""Logits of the client's own model, by input: θ, whose risk is asked for."""
PRIORS = {
    name: torch.tensor(shares, dtype=torch.float64)
    for name, shares in {"even": [0.4, 0.35, 0.25], "peaked": [0.9, 0.05, 0.05], "one class": [1.0, 0.0, 0.0]}.items()
}
SIZES = (5, 20, 50)
UNIFORM = torch.full((3,), 1 / 3).double()

# "Sufficient" data (lm:risk): every input as often as the law has it.
INPUTS = torch.cat([torch.arange(4).repeat_interleave(row) for row in COUNTS])
LABELS = torch.arange(3).repeat_interleave(10)
CONFUSION = confusion_matrix(DEPLOYED.softmax(-1)[INPUTS], LABELS)

ESTIMATORS = {"M⁻¹b": literal_inverse, "simplex_ls": simplex_least_squares}


def true_risk(prior: Tensor) -> Tensor:
    """F of eq:expected risk: the mean loss under P(x | y) and the prior."""
    losses = -ADAPTED.log_softmax(-1).mT
    return (prior.unsqueeze(-1) * LAW * losses).sum()


def estimated_risks(estimator: str, predicted: Tensor) -> Tensor:
    """F̂ of eq:estimated_risk for the mean prediction of every batch."""
    priors = ESTIMATORS[estimator](ConfusionFactors(CONFUSION, UNIFORM), predicted)
    labels = LABELS.expand(len(priors), -1)
    return estimated_risk(ADAPTED[INPUTS].expand(len(priors), -1, -1), labels, class_weights(priors, labels))


def all_batches(prior: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The probability of every batch of this size, and its mean prediction."""
    drawn = torch.tensor(
        [[batch.count(kind) for kind in range(4)] for batch in combinations_with_replacement(range(4), size)]
    ).double()
    logarithms = math.lgamma(size + 1) - torch.lgamma(drawn + 1).sum(-1) + drawn @ (prior @ LAW).log()
    return logarithms.exp(), drawn @ DEPLOYED.softmax(-1) / size


def mean_and_deviation(estimator: str, prior: Tensor, size: int) -> tuple[float, float]:
    """E[F̂] and its standard deviation over all batches."""
    chances, predicted = all_batches(prior, size)
    risks = estimated_risks(estimator, predicted)
    mean = (chances * risks).sum()
    return float(mean), float((chances * (risks - mean).square()).sum().sqrt())


def rows() -> list[str]:
    """docs/results/lemma1.csv."""
    lines = ["prior,samples,risk,estimator,mean,bias,deviation,root_mean_squared_error"]
    for name, prior in PRIORS.items():
        risk = float(true_risk(prior))
        for size in SIZES:
            for estimator in ESTIMATORS:
                mean, deviation = mean_and_deviation(estimator, prior, size)
                error = math.hypot(mean - risk, deviation)
                numbers = (mean, mean - risk, deviation, error)
                lines.append(",".join([name, str(size), f"{risk:.4f}", estimator, *(f"{n:.4f}" for n in numbers)]))
    return [line.replace("-0.0000", "0.0000") for line in lines]


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
