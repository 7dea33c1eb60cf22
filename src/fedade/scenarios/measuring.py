"""What a deployment knows of its model, measured on labelled data that the model was not trained on."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.deployment import Deployment, Reference
from fedade.core.network import Network
from fedade.core.seeds import Seeds
from fedade.core.split import Split
from fedade.maths.priors.estimators import confusion_matrix
from fedade.maths.priors.reweighting import apply_temperature, fit_temperature
from fedade.maths.signals.dynamics import mean_feature

MOST_AT_ONCE = 500
"""Samples in one pass; fewer of large images."""


@torch.no_grad()
def measured_deployment(
    network: Network,
    split: Split,
    parameters: dict[str, Tensor],
    inputs: NDArray[Any] | Tensor,
    labels: NDArray[np.int64],
    prior: Tensor,
    reference_size: int,
    device: torch.device | str,
    progress: Callable[[int, int], None] | None = None,
) -> Deployment:
    """Confusion matrix, temperature, mean prediction, reference set and accuracy, on the CPU. `prior` is the class
    distribution of the pre-training data; `progress` is told how many samples are done, and of how many."""
    classes, passes = torch.from_numpy(labels), []
    at_once = max(1, min(MOST_AT_ONCE, 2**22 // max(1, int(np.prod(inputs.shape[1:])))))
    for rows in np.array_split(np.arange(len(inputs)), max(1, len(inputs) // at_once)):
        passed = network.represent(parameters, _rows(inputs, slice(rows[0], rows[-1] + 1)).to(device))
        passes.append((network.classify(parameters, passed).cpu(), network.summarise(passed).cpu()))
        if progress is not None:
            progress(int(rows[-1]) + 1, len(inputs))
    logits, features = (torch.cat(parts) for parts in zip(*passes, strict=True))
    temperature = fit_temperature(logits, classes)
    probabilities = apply_temperature(logits, temperature).softmax(-1)
    reference = _reference_rows(labels, len(prior), reference_size)
    weights = prior[classes] / torch.bincount(classes, minlength=len(prior))[classes]
    return Deployment(
        network=network,
        split=split,
        parameters={name: value.cpu() for name, value in parameters.items()},
        reference=Reference(_rows(inputs, reference).cpu(), classes[reference]),
        confusion=confusion_matrix(probabilities, classes),
        source_prior=prior,
        mean_prediction=(weights[:, None] * probabilities).sum(0) / weights.sum(),
        initial_feature=mean_feature(features[reference]),
        temperature=temperature,
        accuracy=(logits.argmax(-1) == classes).float().mean(),
        held_out=weights.sum().square() / weights.square().sum(),
    )


def _rows(inputs: NDArray[Any] | Tensor, rows: slice | NDArray[np.int64]) -> Tensor:
    return inputs[rows] if isinstance(inputs, Tensor) else torch.from_numpy(np.array(inputs[rows]))


def _reference_rows(labels: NDArray[np.int64], num_classes: int, size: int) -> NDArray[np.int64]:
    """As many of each class as possible, the same for every run."""
    shuffled = Seeds(0).generator("reference").permutation(len(labels))
    per_class = [shuffled[labels[shuffled] == label] for label in range(num_classes)]
    ranked = [(rank, label, row) for label, rows in enumerate(per_class) for rank, row in enumerate(rows)]
    return np.sort(np.array([row for _, _, row in sorted(ranked)[:size]]))
