"""Deployments of models that were trained elsewhere: measured on held-out data, never trained, and read from a file."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedade.core import storage
from fedade.core.deployment import Deployment, load_deployment
from fedade.core.errors import FedadeError
from fedade.core.identity import digest, tensor_bytes
from fedade.core.precision import without_autocast
from fedade.core.split import Split
from fedade.models.batch_norm import rigid_batch_norms
from fedade.models.splitting import Brought, bring
from fedade.scenarios.held_out import as_prior, check_classes
from fedade.scenarios.measuring import measured_deployment

FORMAT = "1"
"""Version of the files; raised when older ones could no longer be read."""
TRIED = 8
"""Held-out samples on which a model is tried before all are measured."""
USUALLY_KEPT = 500
"""Held-out samples that a deployment keeps where it is not said how many."""


@without_autocast()
def deploy_brought(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    head: str | None = None,
    personal: tuple[str, ...] = Split().personal,
    source_prior: Any = None,
    reference_size: int | None = None,
    unit_pixels: bool = False,
    factory: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Deployment:
    """A copy of a trained module as a deployment, on the module's device; see `fedade.deploy`. With `unit_pixels` the
    module is given bytes as floats from 0 to 1."""
    device = device_of(model)
    brought = bring(model, inputs[:TRIED].to(device), head, unit_pixels)
    if rigid := [name.removeprefix("model.") for name in rigid_batch_norms(brought.network.body)]:
        warnings.warn(
            f"{', '.join(rigid[:3])}{' ...' * (len(rigid) > 3)}: statistics of {len(rigid)} normalisation layers stay "
            "as deployed: they are TorchScript or of a class of their own; use PyTorch's BatchNorm to adapt them",
            RuntimeWarning,
            stacklevel=4,
        )
    with torch.no_grad():
        num_classes = brought.network.logits(brought.parameters, inputs[:1].to(device)).shape[1]
    check_classes(labels, num_classes)
    kept = min(len(labels), max(USUALLY_KEPT, num_classes)) if reference_size is None else reference_size
    if not isinstance(kept, int) or not num_classes <= kept <= len(labels):
        raise FedadeError(
            f"reference_size is {kept!r}, of {len(labels)} held-out samples of {num_classes} classes; pass a whole "
            f"number from {num_classes} to {len(labels)}, or leave it out"
        )
    prior, known = as_prior(source_prior, labels, num_classes), labels.cpu().numpy()
    measured = measured_deployment(
        brought.network, Split(personal), brought.parameters, inputs, known, prior, kept, device, progress
    )
    return replace(measured.to(device), origin=_origin(brought, factory))


@without_autocast()
def load_brought(
    path: Path, model: nn.Module, personal: tuple[str, ...] = Split().personal, unit_pixels: bool = False
) -> Deployment:
    """Read what `Deployment.save` stored of a model that was brought, for the same model with the same weights."""
    said = stored_origin(path)
    tensors, _ = storage.load_tensors(path)
    device = device_of(model)
    try:
        brought = bring(model, tensors["reference/inputs"][:TRIED].to(device), said["head"] or None, unit_pixels)
    except FedadeError as error:
        with_head = f" with the head {said['head']!r}" if said["head"] else ""
        raise FedadeError(
            f"{path} belongs to a {said['model']}{with_head}; load it with that model, which this "
            f"{type(model).__name__} is not ({error})"
        ) from error
    origin = _origin(brought, said.get("factory"))
    for key, what in (("structure", "tensors (names and shapes)"), ("weights", "weights"), ("head", "the head")):
        if said[key] != origin[key]:
            raise FedadeError(
                f"{path} belongs to a model with {what} {said[key]}, not {origin[key]}; load it with that model"
            )
    read = load_deployment(path, brought.network, Split(personal))
    return replace(read.to(device), parameters=brought.parameters, origin=origin)


def stored_origin(path: Path) -> dict[str, str]:
    """What the file of a deployment says of the model that was brought."""
    if not path.is_file():
        raise FedadeError(f"{path} is missing; write it with deployment.save(path)")
    said = storage.load_metadata(path, "write it again with deployment.save(path)")
    if said.get("brought") != FORMAT:
        raise FedadeError(
            f"{path} has format {said.get('brought', 'of another command')}, not {FORMAT}; store it again with "
            "fedade.deploy(...).save(path)"
        )
    return said


def device_of(model: nn.Module) -> torch.device:
    """Where a model's first tensor is; the CPU if it has none."""
    tensors: Iterator[Tensor] = model.parameters() if isinstance(model, nn.Module) else iter(())
    first = next(tensors, None)
    return torch.device("cpu") if first is None else first.device


def _origin(brought: Brought, factory: str | None) -> dict[str, str]:
    shapes = "\n".join(f"{name} {list(value.shape)}" for name, value in sorted(brought.parameters.items()))
    return {
        "brought": FORMAT,
        "model": brought.network.name,
        "head": brought.head,
        "structure": digest(shapes.encode()),
        "weights": digest(*tensor_bytes(brought.parameters)),
        **({} if factory is None else {"factory": factory}),
    }
