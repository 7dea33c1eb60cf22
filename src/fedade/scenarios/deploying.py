"""From a dataset and a recipe to a deployment."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedade.core.deployment import Deployment, Reference, load_deployment
from fedade.core.errors import FedadeError
from fedade.core.identity import digest, tensor_bytes
from fedade.core.network import Network
from fedade.core.provenance import provenance
from fedade.core.seeds import Seeds
from fedade.core.split import Split
from fedade.core.threads import set_threads
from fedade.data.dataset import Dataset, Labelled
from fedade.maths.priors.calibration import apply_temperature, fit_temperature
from fedade.maths.priors.estimators import confusion_matrix
from fedade.maths.signals.dynamics import mean_feature
from fedade.models import MODELS, build
from fedade.models.image import Pixels
from fedade.models.text import build_text, is_text
from fedade.scenarios.partition import Partition, source_prior
from fedade.scenarios.pretraining import Progress, pretrain
from fedade.scenarios.settings import ScenarioSettings

RECIPE_VERSION = 2
"""Part of every key: raised when the same settings would give another model."""


def deployment_key(network: Network, parts: Partition, settings: ScenarioSettings) -> str:
    """A name that two deployments share only if recipe, first weights and data are the same."""
    recipe = settings.model_dump(mode="json", include={"model", "personal", "source", "reference_size", "pretraining"})
    structure = "" if settings.model in MODELS else repr((network.body, network.head))
    return digest(
        json.dumps([RECIPE_VERSION, recipe, structure], sort_keys=True).encode(),
        *tensor_bytes(network.initial_parameters()),
        *(array for part in (parts.trained, parts.held_out) for array in (part.labels, part.inputs[:])),
    )


def deploy(
    dataset: Dataset,
    parts: Partition,
    settings: ScenarioSettings,
    device: str,
    store: Path,
    progress: Progress,
) -> Deployment:
    """The deployment of these settings: read from the store if it is there, else trained and stored."""
    network = _network(dataset, parts.trained, settings)
    split = Split(settings.personal)
    initial = network.initial_parameters()
    split.check(initial)
    set_threads(sum(value.numel() for value in initial.values()))
    called = f"{dataset.name}-{settings.model}-{deployment_key(network, parts, settings)}.safetensors"
    path = store / called.replace("/", "_")
    if not path.exists():
        parameters = pretrain(
            network, parts.trained, settings.pretraining, device, progress, path.with_suffix(".training")
        )
        prior = torch.from_numpy(source_prior(settings.source, dataset.num_classes)).float()
        described = {
            "settings": settings.model_dump_json(),
            "dataset": dataset.name,
            "partial": dataset.partial or "",
            "provenance": json.dumps(provenance(device)),
        }
        _measure(network, split, parameters, parts.held_out, prior, settings, device).save(path, described)
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


def _measure(
    network: Network,
    split: Split,
    parameters: dict[str, Tensor],
    held_out: Labelled,
    prior: Tensor,
    settings: ScenarioSettings,
    device: str,
) -> Deployment:
    """Confusion matrix, temperature and reference set, all from data that the model was not trained on."""
    labels = torch.from_numpy(held_out.labels)
    with torch.no_grad():
        chunks = np.array_split(held_out.inputs, max(1, len(held_out) // 500))
        passes = [_passed(network, parameters, torch.from_numpy(np.array(chunk)).to(device)) for chunk in chunks]
        logits, features = (torch.cat(parts) for parts in zip(*passes, strict=True))
        parameters = {name: value.cpu() for name, value in parameters.items()}
        temperature = fit_temperature(logits, labels)
        probabilities = apply_temperature(logits, temperature).softmax(-1)
        rows = torch.from_numpy(_reference_rows(held_out, len(prior), settings.reference_size))
        weights = prior[labels] / torch.bincount(labels, minlength=len(prior))[labels]
    return Deployment(
        network=network,
        split=split,
        parameters=parameters,
        reference=Reference(torch.from_numpy(held_out.inputs[rows.numpy()]), labels[rows]),
        confusion=confusion_matrix(probabilities, labels),
        source_prior=prior,
        mean_prediction=(weights[:, None] * probabilities).sum(0) / weights.sum(),
        initial_feature=mean_feature(features[rows]),
        temperature=temperature,
        accuracy=(logits.argmax(-1) == labels).float().mean(),
    )


def _passed(network: Network, parameters: dict[str, Tensor], inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, and one vector per input."""
    features = network.represent(parameters, inputs)
    return network.classify(parameters, features).cpu(), network.summarise(features).cpu()


def _reference_rows(held_out: Labelled, num_classes: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """As many of each class as possible, the same for every run."""
    shuffled = Seeds(0).generator("reference").permutation(len(held_out))
    per_class = [shuffled[held_out.labels[shuffled] == label] for label in range(num_classes)]
    ranked = [(rank, label, row) for label, rows in enumerate(per_class) for rank, row in enumerate(rows)]
    return np.sort(np.array([row for _, _, row in sorted(ranked)[:size]]))
