"""A deployment as one file that hosts can be given: weights, calibration, and how to build the network again."""

import hashlib
import json
from pathlib import Path

from fedade.core import storage
from fedade.core.deployment import Deployment, load_deployment
from fedade.core.errors import FedadeError
from fedade.core.split import Split
from fedade.models import build, standardising
from fedade.models.foreign import brought_module
from fedade.scenarios.bringing import load_brought
from fedade.scenarios.own_models import builder_of
from fedade.scenarios.settings import PretrainingSettings, ScenarioSettings

STRUCTURE = "bundle"
"""The metadata entry that describes the network."""


def write_bundle(path: Path, deployment: Deployment, settings: ScenarioSettings) -> str:
    """Store a deployment with its structure; returns its digest."""
    structure = _structure(deployment, settings, settings.pretraining)
    deployment.save(path, {STRUCTURE: json.dumps(structure)})
    return digest(path)


def _structure(
    deployment: Deployment, settings: ScenarioSettings, recipe: PretrainingSettings | None
) -> dict[str, object]:
    """How to build the network again; that of a model which was brought by what builds it, on every host."""
    common = {"model": settings.model, "personal": list(settings.personal)}
    if recipe is None:
        return {**common, "model": builder_of(settings.model), "unit_pixels": settings.pixels == "unit"}
    first = deployment.network.body.get_submodule("0")
    return {
        **common,
        "input_shape": list(deployment.reference.inputs.shape[1:]),
        "num_classes": deployment.num_classes,
        "seed": recipe.seed,
        "pixel_mean": first.get_buffer("mean").flatten().tolist(),
        "pixel_deviation": first.get_buffer("deviation").flatten().tolist(),
    }


def read_bundle(path: Path, expected: str) -> Deployment:
    """The deployment of a file, which must be the one that the task names."""
    if not path.is_file():
        raise FedadeError(f"deployment {path} is missing; copy the file that `fedade flower init` wrote to this host")
    if digest(path) != expected:
        raise FedadeError(f"deployment {path} is not the one of this app; copy the app's own deployment.safetensors")
    structure = json.loads(storage.load_tensors(path)[1].get(STRUCTURE, "null"))
    if structure is None:
        raise FedadeError(f"deployment {path} does not describe its network; write it with `fedade flower init`")
    if "unit_pixels" in structure:
        model = brought_module(structure["model"])
        return load_brought(path, model, tuple(structure["personal"]), structure["unit_pixels"])
    shape = tuple(structure["input_shape"])
    first = standardising(structure["pixel_mean"], structure["pixel_deviation"], shape)
    network = build(structure["model"], shape, structure["num_classes"], first, structure["seed"])
    return load_deployment(path, network, Split(tuple(structure["personal"])))


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
