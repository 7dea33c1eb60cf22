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
from fedade.models import MODELS, build
from fedade.models.image import Pixels
from fedade.models.text import build_text, is_text
from fedade.scenarios.measuring import measured_deployment
from fedade.scenarios.partition import Partition, source_prior
from fedade.scenarios.pretraining import Progress, pretrain
from fedade.scenarios.settings import ScenarioSettings

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
    content = json.dumps([RECIPE_VERSION, weights, measured], sort_keys=True).encode()
    return digest(content, held_out.labels, held_out.inputs[:])


def deploy(
    dataset: Dataset,
    parts: Partition,
    settings: ScenarioSettings,
    device: str,
    store: Path,
    progress: Progress,
) -> Deployment:
    """The deployment of these settings; weights and what is measured of them are read from the store or put there."""
    network = _network(dataset, parts.trained, settings)
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
        if not weights.exists():
            unfinished = weights.with_suffix(".training")
            trained = pretrain(network, parts.trained, settings.pretraining, device, progress, unfinished)
            storage.save_tensors(weights, trained, described)
        parameters = {name: value.to(device) for name, value in storage.load_tensors(weights)[0].items()}
        prior = torch.from_numpy(source_prior(settings.source, dataset.num_classes)).float()
        held_out = parts.held_out
        measured_deployment(
            network.to(device),
            split,
            parameters,
            held_out.inputs,
            held_out.labels,
            prior,
            settings.reference_size,
            device,
        ).save(path, described)
    deployed = load_deployment(path, network, split).to(device)
    encoded = deployed.network.encode(deployed.reference.inputs)
    return replace(deployed, reference=deployed.reference._replace(inputs=encoded))


def _network(dataset: Dataset, trained: Labelled, settings: ScenarioSettings) -> Network:
    texts = len(dataset.input_shape) == 1
    if texts != is_text(settings.model):
        read, wanted = ("texts", "tiny-llama or hf:NAME_OR_PATH") if texts else ("images", "small-cnn or resnet18")
        raise FedadeError(f"scenario.model: {settings.model} does not read the {read} of {dataset.name}; use {wanted}")
    return _text_network(dataset, settings) if texts else _image_network(dataset, trained, settings)


def _text_network(dataset: Dataset, settings: ScenarioSettings) -> Network:
    if settings.pretraining.augment:
        raise FedadeError("scenario.pretraining.augment: flips and shifts are for images; set it to false")
    adapters = settings.text.model_dump(include={"rank", "alpha", "targets", "shared_layers", "first_layer"})
    return build_text(settings.model, dataset.num_classes, **adapters, seed=settings.pretraining.seed)


def _image_network(dataset: Dataset, trained: Labelled, settings: ScenarioSettings) -> Network:
    sample = trained.inputs[:: max(1, len(trained) // 5000)].astype(np.float64) / 255
    pixels = Pixels(sample.mean((0, 2, 3)).round(4).tolist(), sample.std((0, 2, 3)).clip(1e-3).round(4).tolist())
    return build(settings.model, dataset.input_shape, dataset.num_classes, pixels, settings.pretraining.seed)
