"""A deployment as one file that hosts can be given: weights, calibration, and how to build the network again."""

import hashlib
import json
from pathlib import Path

from fedade.core import storage
from fedade.core.deployment import Deployment, load_deployment
from fedade.core.errors import FedadeError
from fedade.core.split import Split
from fedade.models import build, standardising
from fedade.scenarios import ScenarioSettings

STRUCTURE = "structure"
"""The metadata entry that describes the network."""


def write_bundle(path: Path, deployment: Deployment, settings: ScenarioSettings) -> str:
    """Store a deployment with its structure; returns its digest."""
    if settings.pretraining is None:
        raise FedadeError(
            f"scenario.model: {settings.model} was brought, and hosts of Flower cannot build it again; choose a model "
            "that is trained here, or run it with fedade.Adapter on each host"
        )
    pixels = deployment.network.body.get_submodule("0")
    structure = {
        "model": settings.model,
        "personal": list(settings.personal),
        "input_shape": list(deployment.reference.inputs.shape[1:]),
        "num_classes": deployment.num_classes,
        "seed": settings.pretraining.seed,
        "pixel_mean": pixels.get_buffer("mean").flatten().tolist(),
        "pixel_deviation": pixels.get_buffer("deviation").flatten().tolist(),
    }
    deployment.save(path, {STRUCTURE: json.dumps(structure)})
    return digest(path)


def read_bundle(path: Path, expected: str) -> Deployment:
    """The deployment of a file, which must be the one that the task names."""
    if not path.is_file():
        raise FedadeError(f"deployment {path} is missing; copy the file that `fedade flower init` wrote to this host")
    if digest(path) != expected:
        raise FedadeError(f"deployment {path} is not the one of this app; copy the app's own deployment.safetensors")
    structure = json.loads(storage.load_tensors(path)[1].get(STRUCTURE, "null"))
    if structure is None:
        raise FedadeError(f"deployment {path} does not describe its network; write it with `fedade flower init`")
    shape = tuple(structure["input_shape"])
    first = standardising(structure["pixel_mean"], structure["pixel_deviation"], shape)
    network = build(structure["model"], shape, structure["num_classes"], first, structure["seed"])
    return load_deployment(path, network, Split(tuple(structure["personal"])))


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
