"""From a dataset and a recipe to a deployment."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedade.core import storage
from fedade.core.deployment import Deployment, load_deployment
from fedade.core.errors import FedadeError
from fedade.core.identity import digest, tensor_bytes
from fedade.core.network import Network
from fedade.core.provenance import provenance
from fedade.core.split import Split
from fedade.core.threads import set_threads
from fedade.data.dataset import Dataset, Labelled
from fedade.models import MODELS, OF_TABLES, build, standardising
from fedade.models.text import build_text, is_text
from fedade.scenarios.measuring import measured_deployment
from fedade.scenarios.own_models import FILE, MEASURES_VERSION, is_measured, own_deployment
from fedade.scenarios.partition import Partition, refuse_too_few, refuse_too_many, source_prior
from fedade.scenarios.pretraining import TrainingProgress, pretrain
from fedade.scenarios.settings import PretrainingSettings, ScenarioSettings

RECIPE_VERSION = 3
"""Part of every key: raised when the same settings would give another model."""


def weights_key(network: Network, trained: Labelled, settings: ScenarioSettings) -> str:
    """A name that two trained models share only if recipe, first weights and training data are the same."""
    recipe = settings.model_dump(mode="json", include={"model", "pretraining"})
    structure = "" if settings.model in MODELS else repr((network.body, network.head))
    return digest(
        json.dumps([RECIPE_VERSION, recipe, structure], sort_keys=True).encode(),
        *tensor_bytes(network.initial_parameters()),
        trained.labels,
        trained.inputs[:],
    )


def deployment_key(weights: str, held_out: Labelled, settings: ScenarioSettings) -> str:
    """A name that two deployments share only if their weights and all that is measured of them are the same."""
    measured = settings.model_dump(mode="json", include={"personal", "source", "reference_size"})
    content = json.dumps([RECIPE_VERSION, MEASURES_VERSION, weights, measured], sort_keys=True).encode()
    return digest(content, held_out.labels, held_out.inputs[:])


def deploy(
    dataset: Dataset, parts: Partition, settings: ScenarioSettings, device: str, store: Path, progress: TrainingProgress
) -> Deployment:
    """The deployment of these settings, brought or trained; weights and measurements are kept in the store."""
    refuse_too_many(settings.reference_size, len(parts.held_out))
    if is_measured(settings):
        refuse_too_few(settings.reference_size, dataset.num_classes)
    if settings.pretraining is None:
        return own_deployment(dataset, parts, settings, store).to(device)
    if settings.model.startswith(FILE):
        raise FedadeError(f"scenario.model: {settings.model} is never trained; set scenario.pretraining to none")
    network = _network(dataset, parts.trained, settings, settings.pretraining)
    split = Split(settings.personal)
    initial = network.initial_parameters()
    split.check(initial)
    set_threads(sum(value.numel() for value in initial.values()))
    described = {
        "settings": settings.model_dump_json(),
        "dataset": dataset.name,
        "partial": dataset.partial or "",
        "provenance": json.dumps(provenance(device)),
    }
    trained_as = weights_key(network, parts.trained, settings)
    measured_as = deployment_key(trained_as, parts.held_out, settings)
    called = f"{dataset.name}-{settings.model}".replace("/", "_")
    path = store / f"{called}-{measured_as}.safetensors"
    if not path.exists():
        weights = store / f"{called}-{trained_as}.weights"
        with storage.locked(weights.with_name(f".{weights.stem}.lock")):  # others may train other models meanwhile
            if not weights.exists():
                unfinished = weights.with_suffix(".training")
                trained = pretrain(network, parts.trained, settings.pretraining, device, progress, unfinished)
                storage.save_tensors(weights, trained, described)
        parameters = {name: value.to(device) for name, value in storage.load_tensors(weights)[0].items()}
        prior = torch.from_numpy(source_prior(settings.source, dataset.num_classes)).float()
        known, size = parts.held_out, settings.reference_size
        measured_deployment(
            network.to(device), split, parameters, known.inputs, known.labels, prior, size, device
        ).save(path, described)
    deployed = load_deployment(path, network, split).to(device)
    encoded = deployed.network.encode(deployed.reference.inputs)
    return replace(deployed, reference=deployed.reference._replace(inputs=encoded))


def _network(dataset: Dataset, trained: Labelled, settings: ScenarioSettings, recipe: PretrainingSettings) -> Network:
    holds, wanted = _kind_of_inputs(trained)
    if holds not in _readable(settings.model):
        raise FedadeError(f"scenario.model: {settings.model} does not read the {holds} of {dataset.name}; use {wanted}")
    if holds == "texts":
        if recipe.augment:
            raise FedadeError("scenario.pretraining.augment: flips and shifts are for images; set it to false")
        adapters = settings.text.model_dump(include={"rank", "alpha", "targets", "shared_layers", "first_layer"})
        return build_text(settings.model, dataset.num_classes, **adapters, seed=recipe.seed)
    first = standardising(*_moments(trained), dataset.input_shape)
    return build(settings.model, dataset.input_shape, dataset.num_classes, first, recipe.seed)


def _kind_of_inputs(examples: Labelled) -> tuple[str, str]:
    """What examples are, and models that read them."""
    if examples.inputs.ndim > 2:
        return "images", "small-cnn or resnet18"
    if examples.inputs.dtype.kind == "i":
        return "texts", "tiny-llama or hf:NAME_OR_PATH"
    return "tables", "mlp"


def _readable(model: str) -> tuple[str, ...]:
    """What a model reads; one from elsewhere may read either."""
    if is_text(model):
        return ("texts",)
    if model in MODELS:
        return ("tables",) if model in OF_TABLES else ("images",)
    return ("images", "tables")


def _moments(trained: Labelled) -> tuple[list[float], list[float]]:
    """Means and deviations of the channels of images, or of the columns of a table."""
    sample = trained.inputs[:: max(1, len(trained) // 5000)].astype(np.float64)
    if sample.ndim == 2:
        return sample.mean(0).tolist(), sample.std(0).clip(1e-6).tolist()
    if trained.inputs.dtype != np.uint8:
        return sample.mean((0, 2, 3)).tolist(), sample.std((0, 2, 3)).clip(1e-6).tolist()
    shades = sample / 255
    mean, deviation = shades.mean((0, 2, 3)).round(4), shades.std((0, 2, 3)).clip(1e-3).round(4)
    return (torch.tensor(mean.tolist()) * 255).tolist(), (torch.tensor(deviation.tolist()) * 255).tolist()
