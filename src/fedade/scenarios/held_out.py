"""Labelled data that a model was not trained on, as a user brings them: checked, and as tensors."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedade.core.errors import FedadeError

FEW = 5
"""Samples of a class below which what is measured of it is hardly more than chance."""
MOST_NAMED = 5


class HeldOut(NamedTuple):
    """Inputs `[n, ...]` and labels `[n]`, both on the CPU or where they were brought."""

    inputs: Tensor
    labels: Tensor


def as_held_out(data: Any) -> HeldOut:
    """Inputs and labels as tensors, refused in one line where they cannot be what they should."""
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise FedadeError(f"held_out is a {type(data).__name__}; pass (inputs, labels), two tensors or arrays")
    inputs, labels = (_tensor(part, name) for part, name in zip(data, ("inputs", "labels"), strict=True))
    if not inputs.numel() and not labels.numel():
        raise FedadeError(f"there are no held-out samples; bring at least {FEW} of every class, with their labels")
    if inputs.ndim == 0 or len(inputs) != labels.numel() or labels.ndim != 1:
        raise FedadeError(
            f"held-out inputs {list(inputs.shape)} and labels {list(labels.shape)} do not belong together; "
            "there must be one label [n] for each input [n, ...]"
        )
    if labels.is_complex() or (labels.is_floating_point() and not torch.equal(labels, labels.round())):
        raise FedadeError("held-out labels are not whole numbers; pass class numbers 0 to K - 1")
    if inputs.is_floating_point() and not inputs.isfinite().all():
        broken = (~inputs.isfinite()).flatten(1).any(-1).nonzero()[0].item()
        raise FedadeError(f"held-out input {broken} holds NaN or infinite values; clean the data")
    return HeldOut((inputs.float() if inputs.is_floating_point() else inputs).contiguous(), labels.long())


def check_classes(labels: Tensor, num_classes: int) -> None:
    """Refuse labels that the model does not know and classes without any sample; warn where there are few."""
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= num_classes:
        wrong = lowest if lowest < 0 else highest
        raise FedadeError(f"held-out labels contain {wrong}; the model has classes 0 to {num_classes - 1}")
    counts = torch.bincount(labels, minlength=num_classes)
    absent, scarce = ((rows.nonzero().flatten().tolist()) for rows in (counts == 0, (counts > 0) & (counts < FEW)))
    if absent:
        raise FedadeError(f"no held-out sample of {_classes(absent)}; bring at least {FEW} of every class")
    if scarce:
        fewest = int(counts.min())
        warnings.warn(
            f"only {fewest} held-out sample{'s' * (fewest > 1)} of {_classes(scarce)}; rates and moments of classes "
            f"with fewer than {FEW} are hardly more than chance",
            RuntimeWarning,
            stacklevel=3,
        )


def as_prior(prior: Any, labels: Tensor, num_classes: int) -> Tensor:
    """A class distribution: the given one, checked, or the frequencies of the labels."""
    if prior is None:
        return torch.bincount(labels, minlength=num_classes).float() / len(labels)
    given = _tensor(prior, "source_prior").float().cpu()
    if given.shape != (num_classes,) or not (given > 0).all() or not given.isfinite().all():
        raise FedadeError(f"source_prior {given.tolist()} is not {num_classes} positive numbers, one for each class")
    return given / given.sum()


def _tensor(value: Any, name: str) -> Tensor:
    try:
        tensor = value.detach() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
    except (TypeError, ValueError) as error:
        raise FedadeError(f"{name} cannot be read as a tensor ({error})") from error
    if not tensor.ndim:
        raise FedadeError(f"{name} is a single number; pass one entry for each sample")
    return tensor


def _classes(numbers: list[int]) -> str:
    named = ", ".join(map(str, numbers[:MOST_NAMED]))
    more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    return f"class{'es' * (len(numbers) > 1)} {named}{more}"
