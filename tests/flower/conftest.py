from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedade.core import storage
from fedade.experiments.presets import MINIBATCH, SINGLE_STEPS, for_each
from fedade.experiments.settings import merged
from fedade.flower import exchange, numbered_name
from fedade.flower.client_app import client_app
from fedade.flower.server_app import adapt
from fedade.flower.settings import CONFIG, FlowerTask, task_from

from .in_process import InProcessGrid, grid_of

TaskFactory = Callable[..., FlowerTask]

SETTINGS = {
    "scenario": {
        "dataset": "digits",
        "kind": "label",
        "num_clients": 4,
        "num_timesteps": 2,
        "samples": 12,
        "train_size": 350,
        "reference_size": 20,
        "pretraining": {"epochs": 2},
    },
    "protocol": {"rounds": 2, "participation": 0.5},
    "method": for_each((*MINIBATCH, *SINGLE_STEPS), {"rate": {"low": 1e-3, "mid": 1e-2, "high": 3e-2}}),
    "methods": ["fed-ade"],
}


def names(count: int) -> list[str]:
    return [numbered_name(number) for number in range(count)]


@pytest.fixture
def make_task(cache: str) -> TaskFactory:
    """A short task on the default data; keyword arguments are settings on top."""

    def make(**settings: Any) -> FlowerTask:
        said = merged(SETTINGS, settings)
        above = {"clients": names(said["scenario"]["num_clients"]), "share": "everything", "timeout_seconds": 60.0}
        return task_from({**said, "flower": {**above, **said.get("flower", {})}})

    return make


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to wait for between polls when clients answer at once."""
    monkeypatch.setattr(exchange, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(exchange, "RESEND_SECONDS", 0.01)


@pytest.fixture
def make_grid(tmp_path: Path, quick: None) -> Callable[..., InProcessGrid]:
    """A grid of real clients in this process, whose nodes come in no order."""

    def make(task: FlowerTask, clients: list[str] | None = None, in_order: bool = True) -> InProcessGrid:
        storage.write_yaml(tmp_path / CONFIG, task.as_plain())
        known = clients or list(task.flower.clients)
        return grid_of(tmp_path, client_app(tmp_path, in_order=in_order), [*known[1::2], *known[::2]])

    return make


@pytest.fixture
def served(make_grid: Callable[..., InProcessGrid], tmp_path: Path) -> Callable[[FlowerTask], InProcessGrid]:
    """A task run to its trace in this process, into `out`."""

    def run(task: FlowerTask) -> InProcessGrid:
        grid = make_grid(task)
        adapt(task, grid, tmp_path / "out")
        return grid

    return run
