"""Models that users bring to a scenario with their weights, which are part of its identity: deployed, never trained."""

import inspect
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedade.core.deployment import Deployment, load_deployment
from fedade.core.errors import FedadeError
from fedade.core.identity import digest, tensor_bytes
from fedade.core.split import Split
from fedade.core.threads import set_threads
from fedade.data.dataset import Dataset
from fedade.data.registry import is_own, load
from fedade.models.foreign import brought_module
from fedade.models.splitting import Unwrapped, bring
from fedade.scenarios.bringing import TRIED, deploy_brought, load_brought, stored_origin
from fedade.scenarios.partition import Partition
from fedade.scenarios.settings import PixelScale, ScenarioSettings

FILE = "deployment:"
"""How the file of a deployment is named in `scenario.model`."""
FEW_IMAGES = 200
"""Held-out images that tell whether a model was trained on bytes or on floats; it is far worse with the others."""
CLEARLY = 0.15
"""Share of these by which one of the two must be better to be named."""
MEASURES_VERSION = 2
"""Part of every key: raised when the same model and data would be measured differently."""


def is_measured(settings: ScenarioSettings) -> bool:
    """Whether a model is brought that is measured on the held-out data, one of each class among them."""
    return settings.pretraining is None and not settings.model.startswith(FILE)


def own_deployment(dataset: Dataset, parts: Partition, settings: ScenarioSettings, store: Path) -> Deployment:
    """The deployment of a model that was brought, on the CPU: measured, or read from the store or from its file."""
    if settings.train_size is not None:
        raise FedadeError("scenario.train_size: nothing is trained with scenario.pretraining none; set it to null")
    if settings.source != "uniform":
        raise FedadeError(
            f"scenario.source: {settings.source} shapes training data, and nothing is trained with "
            "scenario.pretraining none; leave it out"
        )
    model = own_model(settings.model)
    set_threads(sum(value.numel() for value in model.parameters()))
    make = _from_file if settings.model.startswith(FILE) else _measured
    deployment = make(model, parts, settings, store)
    if deployment.num_classes != dataset.num_classes:
        raise FedadeError(
            f"scenario.model: {settings.model} tells {deployment.num_classes} classes apart and {dataset.name} has "
            f"{dataset.num_classes}; bring data with the labels 0 to {deployment.num_classes - 1}"
        )
    if (accuracy := float(deployment.accuracy)) <= 1 / deployment.num_classes:
        # Most often the inputs are not scaled as those that the model was trained on.
        warnings.warn(
            f"{settings.model} is right on {100 * accuracy:.1f} % of the held-out examples, no more than by chance; "
            "are the inputs scaled as in its training, and the labels numbered alike? (scenario.pixels)",
            RuntimeWarning,
            stacklevel=2,
        )
    other: PixelScale = "unit" if settings.pixels == "bytes" else "bytes"
    if (right := _right_with(other, model, parts)) > accuracy + CLEARLY:
        warnings.warn(
            f"{settings.model} is right on {100 * accuracy:.0f} % of the held-out examples, and on {100 * right:.0f} % "
            f"with scenario.pixels: {other}; set it where the model was trained so",
            RuntimeWarning,
            stacklevel=2,
        )
    return deployment


@torch.no_grad()
def _right_with(pixels: PixelScale, model: nn.Module, parts: Partition) -> float:
    """How often a model is right on some held-out images where bytes are given to it in this way; 0 where it fails."""
    inputs = torch.from_numpy(np.array(parts.held_out.inputs[:FEW_IMAGES]))
    if inputs.dtype is not torch.uint8:
        return 0.0
    try:
        answers = Unwrapped(model, pixels == "unit").eval()(inputs).argmax(1)
    except Exception:  # noqa: BLE001 - a stranger's code may take floats only
        return 0.0
    return float((answers == torch.from_numpy(parts.held_out.labels[:FEW_IMAGES])).float().mean())


def own_model(name: str) -> nn.Module:
    """The module that `import:package.module:factory`, `timm:NAME` or `deployment:FILE?factory=PATH` names."""
    return brought_module(builder_of(name))


def builder_of(name: str) -> str:
    """What builds a model: its name, or the import path that the file of a deployment has, or that is given with it."""
    if not name.startswith(FILE):
        return name
    path, factory = _file_and_factory(name)
    factory = factory or stored_origin(path).get("factory", "")
    if not factory:
        raise FedadeError(
            f"scenario.model: {path} does not say what builds its network; name it: {FILE}{path}?factory="
            "package.module:function, or store it with fedade.deploy(..., factory=...)"
        )
    return f"import:{factory}"


def weights_digest(settings: ScenarioSettings) -> str | None:
    """A name for the weights, the structure and the code of a model that is brought; None for those trained here. Of a
    deployment's file it also names all that was measured."""
    return None if settings.pretraining is not None else _digest(own_model(settings.model), settings)


def _digest(model: nn.Module, settings: ScenarioSettings) -> str:
    file = _file_and_factory(settings.model)[0].read_bytes() if settings.model.startswith(FILE) else b""
    return digest(*tensor_bytes(model.state_dict()), repr(model).encode(), *_code(model), file)


def _file_and_factory(name: str) -> tuple[Path, str]:
    path, question, option = name.removeprefix(FILE).partition("?")
    key, _, factory = option.partition("=")
    if question and (key != "factory" or not factory):
        raise FedadeError(
            f"scenario.model: unknown option {option!r}; the one option is ?factory=package.module:function"
        )
    return Path(path).expanduser(), factory


def _from_file(model: nn.Module, parts: Partition, settings: ScenarioSettings, _store: Path) -> Deployment:
    path = _file_and_factory(settings.model)[0]
    deployment = load_brought(path, model, settings.personal, settings.pixels == "unit")
    kept, streamed = tuple(deployment.reference.inputs.shape[1:]), parts.pool.inputs.shape[1:]
    if kept != streamed:
        raise FedadeError(
            f"scenario.model: {path} was measured on inputs of shape {list(kept)}, and the streamed ones have "
            f"{list(streamed)}; bring data of that shape"
        )
    return deployment


def _measured(model: nn.Module, parts: Partition, settings: ScenarioSettings, store: Path) -> Deployment:
    held_out, unit = parts.held_out, settings.pixels == "unit"
    inputs, labels = torch.from_numpy(np.array(held_out.inputs)), torch.from_numpy(held_out.labels)
    recipe = settings.model_dump(mode="json", include={"personal", "head", "pixels", "reference_size"})
    key = digest(
        json.dumps([MEASURES_VERSION, recipe, _digest(model, settings)], sort_keys=True).encode(),
        *(held_out.labels, held_out.inputs[:]),
    )
    path = store / f"brought-{key}.safetensors"
    if path.exists():
        brought = bring(model, inputs[:TRIED], settings.head, unit)
        return replace(load_deployment(path, brought.network, Split(settings.personal)), origin=stored_origin(path))
    chosen = settings.model_dump(include={"head", "personal", "reference_size"})
    deployment = deploy_brought(model.cpu(), inputs, labels, unit_pixels=unit, **chosen)
    deployment.save(path)
    return deployment


def _code(model: nn.Module) -> Iterator[bytes]:
    """The text of the classes of a model's modules that its users may change, so that a changed forward pass is
    noticed; the name of one without a text."""
    for kind in sorted(set(map(type, model.modules())), key=lambda kind: (kind.__module__, kind.__qualname__)):
        if kind.__module__.partition(".")[0] not in ("torch", "fedade"):
            try:
                yield inspect.getsource(kind).encode()
            except (OSError, TypeError):
                yield f"{kind.__module__}:{kind.__qualname__}".encode()


def identified(settings: ScenarioSettings) -> ScenarioSettings:
    """Settings that name the user's own weights and data; where they did already, others are refused."""
    digests: dict[str, str | None] = {}
    for name, (setting, measure) in _OWN.items():
        stated, digests[name] = getattr(settings, name), measure(settings)
        if stated not in (None, digests[name]):
            raise FedadeError(
                f"scenario.{setting}: {getattr(settings, setting)} has changed ({name} {stated} before, "
                f"{digests[name]} now); bring the old one back, or start another run"
            )
    return settings.model_copy(update=digests)


def _data_digest(settings: ScenarioSettings) -> str | None:
    if not is_own(settings.dataset):
        return None
    dataset = load(settings.dataset, settings.data_dir)
    return digest(*(array for part in (dataset.train, dataset.test) for array in (part.labels, part.inputs[:])))


_OWN = {"data_digest": ("dataset", _data_digest), "weights_digest": ("model", weights_digest)}
