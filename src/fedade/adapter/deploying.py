"""From a trained module and held-out data to a deployment, and back from a file."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from torch import Tensor, nn

from fedade.adapter.held_out import as_held_out, as_prior, check_classes
from fedade.adapter.splitting import Brought, bring
from fedade.core import storage
from fedade.core.deployment import Deployment
from fedade.core.deployment import load_deployment as read_deployment
from fedade.core.errors import FedadeError
from fedade.core.identity import digest, tensor_bytes
from fedade.core.split import Split
from fedade.scenarios.measuring import measured_deployment

FORMAT = "1"
"""Version of the files; raised when older ones could no longer be read."""
TRIED = 8
"""Held-out samples on which a model is tried before all are measured."""


def deploy(
    model: nn.Module,
    held_out: tuple[Any, Any],
    *,
    head: str | None = None,
    source_prior: Any = None,
    reference_size: int = 500,
    progress: bool = True,
) -> Deployment:
    """Prepare a trained classifier for adaptation, with what is measured of it on labelled data it was not trained on.

    `model` is any `nn.Module` that gives logits `[n, K]`, or an object with `.logits`; it is copied, never changed.
    `held_out` are `(inputs, labels)`. `head` names the layer that gives the logits where it is not found by itself.
    `source_prior` are the class frequencies of the training data, unless those of the held-out labels. Of the held-out
    data `reference_size` samples are kept, balanced over the classes. The copy computes in float32, on the device that
    the model is on.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> deployment = deploy(model, (torch.rand(60, 4), torch.arange(60) % 3))
    >>> deployment.num_classes
    3
    """
    if reference_size < 1:
        raise FedadeError(f"reference_size is {reference_size}; keep at least one sample of each class")
    device = _device_of(model)
    inputs, labels = as_held_out(held_out)
    brought = bring(model, inputs[:TRIED].to(device), head)
    with torch.no_grad():
        num_classes = brought.network.logits(brought.parameters, inputs[:1].to(device)).shape[1]
    check_classes(labels, num_classes)
    prior = as_prior(source_prior, labels, num_classes)
    with _bar(progress) as told:
        deployment = measured_deployment(
            brought.network,
            Split(),
            brought.parameters,
            inputs,
            labels.cpu().numpy(),
            prior,
            max(reference_size, num_classes),
            device,
            told,
        )
    return replace(deployment.to(device), origin=_origin(brought))


def load_deployment(path: Path | str, model: nn.Module) -> Deployment:
    """Read what `Deployment.save` stored of a model that was brought, for the same model with the same weights.

    >>> import tempfile
    >>> model = torch.nn.Linear(4, 3)
    >>> deployment = deploy(model, (torch.rand(60, 4), torch.arange(60) % 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     deployment.save(f"{folder}/deployment.safetensors")
    ...     load_deployment(f"{folder}/deployment.safetensors", model).digest == deployment.digest
    True
    """
    if not Path(path).is_file():
        raise FedadeError(f"{path} is missing; write it with deployment.save(path)")
    tensors, said = storage.load_tensors(Path(path))
    if said.get("brought") != FORMAT:
        raise FedadeError(
            f"{path} has format {said.get('brought', 'of another command')}, not {FORMAT}; store it again with "
            "fedade.deploy(...).save(path)"
        )
    device = _device_of(model)
    brought = bring(model, tensors["reference/inputs"][:TRIED].to(device), said["head"] or None)
    for what, stored, given in _differences(said, _origin(brought)):
        raise FedadeError(f"{path} belongs to a model with {what} {stored}, not {given}; load it with that model")
    read = read_deployment(path, brought.network, Split())
    return replace(read.to(device), parameters=brought.parameters, origin=_origin(brought))


def _differences(stored: Mapping[str, str], given: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    names = {"structure": "tensors (names and shapes)", "weights": "weights", "head": "the head"}
    return ((told, stored[key], given[key]) for key, told in names.items() if stored[key] != given[key])


def _origin(brought: Brought) -> dict[str, str]:
    shapes = "\n".join(f"{name} {list(value.shape)}" for name, value in sorted(brought.parameters.items()))
    return {
        "brought": FORMAT,
        "model": brought.network.name,
        "head": brought.head,
        "structure": digest(shapes.encode()),
        "weights": digest(*tensor_bytes(brought.parameters)),
    }


def _device_of(model: nn.Module) -> torch.device:
    """Where a model's first tensor is; the CPU if it has none."""
    tensors: Iterator[Tensor] = model.parameters() if isinstance(model, nn.Module) else iter(())
    first = next(tensors, None)
    return torch.device("cpu") if first is None else first.device


@contextmanager
def _bar(wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, if that is a terminal."""
    shown = wanted and sys.stderr is not None and sys.stderr.isatty()
    columns = (TextColumn("measuring on held-out data"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task("measure", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
