"""From a trained module and held-out data to a deployment, and back from a file."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from torch import nn

from fedade.core.deployment import Deployment
from fedade.scenarios.bringing import deploy_brought, load_brought
from fedade.scenarios.held_out import as_held_out


def deploy(
    model: nn.Module,
    held_out: tuple[Any, Any],
    *,
    head: str | None = None,
    source_prior: Any = None,
    reference_size: int | None = None,
    factory: str | None = None,
    progress: bool = True,
) -> Deployment:
    """Prepare a trained classifier for adaptation, with what is measured of it on labelled data it was not trained on.

    `model` is any `nn.Module` that gives logits `[n, K]`, or an object with `.logits`; it is copied, never changed.
    `held_out` are `(inputs, labels)`. `head` names the layer that gives the logits where it is not found by itself.
    `source_prior` are the class frequencies of the training data, unless those of the held-out labels. Of the held-out
    data `reference_size` samples are kept, balanced over the classes: 500, or all where there are fewer. `factory` is
    written into the deployment's file: the import path, `package.module:function`, of what returns the model, so that
    `fedade run` can build it. The copy computes in float32, on the device that the model is on.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> deployment = deploy(model, (torch.rand(60, 4), torch.arange(60) % 3))
    >>> deployment.num_classes
    3
    """
    inputs, labels = as_held_out(held_out)
    with _bar(progress) as told:
        return deploy_brought(
            model,
            inputs,
            labels,
            head=head,
            source_prior=source_prior,
            reference_size=reference_size,
            factory=factory,
            progress=told,
        )


def load_deployment(path: Path | str, model: nn.Module) -> Deployment:
    """Read what `Deployment.save` stored of a model that was brought, for the same model with the same weights.

    >>> import tempfile
    >>> import torch
    >>> model = torch.nn.Linear(4, 3)
    >>> deployment = deploy(model, (torch.rand(60, 4), torch.arange(60) % 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     deployment.save(f"{folder}/deployment.safetensors")
    ...     load_deployment(f"{folder}/deployment.safetensors", model).digest == deployment.digest
    True
    """
    return load_brought(Path(path), model)


@contextmanager
def _bar(wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, if that is a terminal."""
    shown = wanted and sys.stderr is not None and sys.stderr.isatty()
    columns = (TextColumn("measuring on held-out data"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown) as bar:
        task = bar.add_task("measure", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
