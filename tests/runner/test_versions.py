"""What was begun with another version or other settings is refused, with both named, and never mixed in silence."""

import pytest

import fedade
from fedade.checking.trials import SMALL
from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.experiments.settings import experiment_from
from fedade.products import run_folder
from fedade.products.run_folder import run
from fedade.runner import checkpoints

from .crash_points import crashing, ended_with


@pytest.fixture
def begun(cache, tmp_path, monkeypatch):
    """A run that was killed after its first checkpoint."""
    monkeypatch.setattr(checkpoints, "SAVE_SHARE", float("inf"))
    monkeypatch.setattr(run_folder, "write_report", lambda folder: folder)
    experiment = experiment_from({"scenario": {**SMALL, "num_timesteps": 2}, "methods": ["tent"], "seeds": [7]})
    with crashing(tmp_path / "whole", None) as operations:
        run(experiment, tmp_path / "whole")
    saved = next(place for place, name in enumerate(operations) if name.startswith("replace") and "world" in name)
    ended_with(lambda: run(experiment, tmp_path / "run"), tmp_path / "run", saved + 1, full=False)
    (world,) = (tmp_path / "run").rglob("world.safetensors")
    return experiment, tmp_path / "run", world


def test_a_run_of_another_version_is_not_continued(begun, monkeypatch):
    experiment, folder, _ = begun
    monkeypatch.setattr(run_folder, "__version__", "0.9.9")
    with pytest.raises(FedadeError, match=f"was begun with fedade {fedade.__version__}, this is 0.9.9"):
        run(experiment, folder)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [("version", "0.0.1", "other version (0.0.1 there, "), ("settings", '{"rate": 9.0}', "other tent.")],
)
def test_a_state_of_another_version_or_of_other_settings_is_not_continued(begun, key, value, told):
    experiment, folder, world = begun
    tensors, metadata = storage.load_tensors(world)
    storage.save_tensors(world, tensors, {**metadata, key: value})
    ((_, status),) = run(experiment, folder).failed
    assert told in status.reason
    assert "now); delete the folder to run it again" in status.reason


def test_a_state_of_the_same_version_and_settings_is_continued(begun):
    experiment, folder, _ = begun
    assert not run(experiment, folder).failed
