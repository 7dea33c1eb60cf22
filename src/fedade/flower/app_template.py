"""The Flower app that a user runs: a shim whose only dependency is Flower, and one configuration file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.events import Report
from fedade.core.paths import cache_dir
from fedade.experiments.settings import experiment_from
from fedade.flower.bundle import write_bundle
from fedade.flower.settings import CONFIG, FlowerTask, end_as_setting, task_from
from fedade.scenarios.building import build_deployment

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
    """Write the files of a task's app; returns them."""
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
