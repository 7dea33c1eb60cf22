"""What hosts are given: a deployment as one file, and the Flower app, a shim whose only dependency is Flower."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedade.core import storage
from fedade.core.deployment import Deployment, load_deployment
from fedade.core.errors import FedadeError
from fedade.core.events import Report
from fedade.core.paths import cache_dir
from fedade.core.split import Split
from fedade.experiments.settings import experiment_from
from fedade.flower.settings import CONFIG, FlowerTask, end_as_setting, task_from
from fedade.models import build, standardising
from fedade.models.foreign import brought_module
from fedade.scenarios.bringing import load_brought
from fedade.scenarios.building import build_deployment
from fedade.scenarios.own_models import builder_of
from fedade.scenarios.settings import ScenarioSettings

STRUCTURE = "bundle"
"""The metadata entry that describes the network."""


def write_bundle(path: Path, deployment: Deployment, settings: ScenarioSettings) -> str:
    """Store a deployment with how to build its network again; returns its digest. That of a model which was brought is
    built by what the user built it with, on every host."""
    structure: dict[str, object] = {"model": settings.model, "personal": list(settings.personal)}
    if settings.pretraining is None:
        structure |= {"model": builder_of(settings.model), "unit_pixels": settings.pixels == "unit"}
    else:
        first = deployment.network.body.get_submodule("0")
        structure |= {
            "input_shape": list(deployment.reference.inputs.shape[1:]),
            "num_classes": deployment.num_classes,
            "seed": settings.pretraining.seed,
            "pixel_mean": first.get_buffer("mean").flatten().tolist(),
            "pixel_deviation": first.get_buffer("deviation").flatten().tolist(),
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
    if "unit_pixels" in structure:
        model = brought_module(structure["model"])
        return load_brought(path, model, tuple(structure["personal"]), structure["unit_pixels"])
    shape = tuple(structure["input_shape"])
    first = standardising(structure["pixel_mean"], structure["pixel_deviation"], shape)
    network = build(structure["model"], shape, structure["num_classes"], first, structure["seed"])
    return load_deployment(path, network, Split(tuple(structure["personal"])))


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


DEPLOYMENT = "deployment.safetensors"
"""Beside the app, not in it: Flower's bundles carry code and text only."""
_PYPROJECT = """\
# Nothing but Flower may be a dependency here: Flower can install an app's dependencies anew for every run,
# and would fetch another PyTorch. Install fedade itself on every host.
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedade-app"
version = "1.0.0"
description = "Label-free adaptation of deployed models with fedade"
license = "Apache-2.0"
dependencies = ["flwr>=1.41,<1.43"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedade"

[tool.flwr.app.components]
serverapp = "fedade_app.server:app"
clientapp = "fedade_app.client:app"

[tool.flwr.app.config]
out = "run"            # folder of the run, on the host of the SuperLink
state-dir = ""         # where clients keep their state, unless their node says
deployment = ""        # the stored deployment, on every host, unless its node says
after = ""             # folder of an earlier run, whose shared layers this one begins with
"""
_MODULE = '''\
"""The {side} of this app; everything else is in the package fedade."""

from pathlib import Path

from fedade.flower.{side}_app import {side}_app

app = {side}_app(Path(__file__).parent.parent)
'''


def init_app(folder: Path, settings: Mapping[str, Any], report: Report) -> list[Path]:
    """Make the app of some settings, and its deployment where clients have streams of their own."""
    settings = end_as_setting(settings)
    stream = (settings.get("flower") or {}).get("stream") or {}
    if folder.exists() and any(folder.iterdir()) and not (folder / CONFIG).exists():
        raise FedadeError(f"{folder} is not empty and holds no app; choose another folder")
    if stream.get("kind", "partition") == "partition":
        return write_app(folder, task_from(settings))
    rest = {key: value for key, value in settings.items() if key not in ("flower", "deployment")}
    scenario = experiment_from(rest).scenario
    deployment = build_deployment(scenario, "cpu", cache_dir(), lambda done, of: report("pre-training", done, of))
    stored = folder / DEPLOYMENT
    task = task_from({**settings, "deployment": write_bundle(stored, deployment, scenario)})
    return [*write_app(folder, task), stored]


def write_app(folder: Path, task: FlowerTask) -> list[Path]:
    package = folder / "fedade_app"
    texts = {
        folder / "pyproject.toml": _PYPROJECT,
        package / "__init__.py": '"""Entry points for Flower."""\n',
        package / "client.py": _MODULE.format(side="client"),
        package / "server.py": _MODULE.format(side="server"),
    }
    for path, text in texts.items():
        storage.write_bytes(path, text.encode())
    storage.write_yaml(folder / CONFIG, task.as_plain())
    return [*texts, folder / CONFIG]
