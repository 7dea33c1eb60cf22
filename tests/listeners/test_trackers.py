"""Every registered tracker keeps a whole record with every timestep once; read back from what it wrote."""

import importlib
import os
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import fedade.listeners
from fedade.core import importing
from fedade.core.errors import FedadeError
from fedade.core.events import Listener
from fedade.listeners import TRACKERS, export, trackers_named
from fedade.listeners.tracker import Tracker

from .folders import STEPS, Cell

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow's own, under SQLAlchemy 2.1
ROOT = Path(__file__).parents[2]
NEEDS = {"tensorboard": "tensorboard", "mlflow": "mlflow"}
Points = dict[str, list[tuple[int, float]]]


def tensorboard_records(folder: Path) -> dict[str, Points]:
    """What the event files hold, all of it: a viewer would hide doubles."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    found: dict[str, Points] = {}
    for path in sorted(folder.rglob("events.out.*")):
        points = found.setdefault(path.parent.name, {})
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                number = value.tensor.float_val[0] if value.tensor.float_val else float("nan")
                points.setdefault(value.tag, []).append((event.step, number))
    return found


def mlflow_records(folder: Path) -> dict[str, Points]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(os.environ["MLFLOW_TRACKING_URI"])
    experiment = client.get_experiment_by_name(folder.name)
    found: dict[str, Points] = {}
    for run in client.search_runs([experiment.experiment_id]):
        assert run.info.run_name not in found, "a second run of one cell"
        histories = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
        found[run.info.run_name] = {
            name: [(point.step, point.value) for point in history] for name, history in histories.items()
        } | ({"failure/text_summary": []} if "failure" in run.data.tags else {})
    return found


READERS: dict[str, Callable[[Path], dict[str, Points]]] = {"tensorboard": tensorboard_records, "mlflow": mlflow_records}


@pytest.fixture(scope="session")
def mlflow_store(tmp_path_factory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture(params=sorted(TRACKERS))
def tracker(request, monkeypatch, mlflow_store) -> Iterator[str]:
    name = request.param
    if find_spec(NEEDS[name]) is None:
        pytest.skip(f"pip install 'fedade[{name}]' to test this tracker")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_store)
    return name


def folder_named(tmp_path: Path, request) -> Path:
    """Named by its test: an MLflow experiment is called after its folder."""
    return tmp_path / request.node.name.replace("[", "-").strip("]")


@pytest.fixture
def folder(tmp_path, request) -> Path:
    return folder_named(tmp_path, request)


def tell(listener: Listener, cell: Cell, first: int, last: int) -> None:
    """Timesteps of a cell, as a runner tells them."""
    rows = cell.rows
    for step in range(first, last + 1):
        listener.on_rows(cell.info, step, lambda step=step: rows[step])


def only(tracker: str, folder: Path) -> Points:
    (points,) = READERS[tracker](folder).values()
    return points


def whole(points: Points, cell: Cell) -> bool:
    """Whether every timestep is there once, with its mean over clients."""
    return points["accuracy_post"] == [(step, pytest.approx(value)) for step, value in cell.accuracies]


def test_every_tracker_is_an_extra_and_every_tracker_file_is_registered():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(TRACKERS) <= set(extras)
    assert set(TRACKERS) == set(READERS) == set(NEEDS), "write here how to read a new tracker's record"
    files = Path(fedade.listeners.__file__).parent.glob("*.py")
    modules = [importlib.import_module(f"fedade.listeners.{path.stem}") for path in files if path.stem != "__init__"]
    backends = {
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and hasattr(found, "record") and found.__name__ != "Backend"
    }
    assert backends == set(TRACKERS.values())


def test_a_run_is_recorded_as_it_goes(tracker, folder):
    cell = Cell(folder)
    (listener,) = trackers_named([tracker, tracker], folder)
    assert listener.wants_rows
    listener.on_start(cell.info, 0)
    tell(listener, cell, 1, STEPS)
    listener.on_end(cell.info, cell.finish())
    points = only(tracker, folder)
    assert whole(points, cell)
    assert {"learning_rate", "s", "s_unc", "s_rep", "bytes_sent", "participated"} <= points.keys()
    assert not {"prior", "true_prior", "client", "method", "result/method", "result/seed", "failure"} & points.keys()
    mean = sum(value for _, value in cell.accuracies) / STEPS
    assert points["result/accuracy_post"] == [(STEPS, pytest.approx(mean))]


def test_a_continued_run_continues_its_record(tracker, folder):
    cell = Cell(folder)
    (killed,) = trackers_named([tracker], folder)
    killed.on_start(cell.info, 0)
    tell(killed, cell, 1, 7)  # nobody closes it: what it held back is lost
    cell.write_rows(1, 5)  # and so are the timesteps since the last checkpoint
    (listener,) = trackers_named([tracker], folder)
    listener.on_start(cell.info, 5)
    tell(listener, cell, 6, 8)
    listener.close()
    cell.write_rows(6, 8)
    (listener,) = trackers_named([tracker], folder)
    listener.on_start(cell.info, 6)
    tell(listener, cell, 7, STEPS)
    listener.on_end(cell.info, cell.finish())
    assert whole(only(tracker, folder), cell)


def test_exporting_again_adds_only_what_is_new(tracker, folder):
    cells = [Cell(folder, "fed-ade"), Cell(folder, "source"), Cell(folder, "fth")]
    cells[0].finish()
    cells[1].write_rows(1, 4)
    for _ in range(2):
        assert export(folder, tracker) == 2
        records = READERS[tracker](folder)
        assert sorted(len(points["accuracy_post"]) for points in records.values()) == [4, STEPS]
    cells[1].finish()
    cells[2].write_rows(1, 2)
    cells[2].fail("the disk is full")
    for _ in range(2):
        assert export(folder, tracker) == 3
    records = {name.split("-lin")[0].split(" lin")[0]: points for name, points in READERS[tracker](folder).items()}
    assert whole(records["fed-ade"], cells[0])
    assert whole(records["source"], cells[1])
    assert [len(records[name]["result/accuracy_post"]) for name in ("fed-ade", "source")] == [1, 1]
    assert [step for step, _ in records["fth"]["accuracy_post"]] == [1, 2]
    assert [name for name, points in records.items() if "failure/text_summary" in points] == ["fth"]


def test_what_was_recorded_live_is_not_exported_twice(tracker, folder):
    cell = Cell(folder)
    (listener,) = trackers_named([tracker], folder)
    listener.on_start(cell.info, 0)
    tell(listener, cell, 1, STEPS)
    listener.on_end(cell.info, cell.finish())
    before = READERS[tracker](folder)
    export(folder, tracker)
    assert {
        name: {tag: [step for step, _ in one] for tag, one in points.items()} for name, points in before.items()
    } == {
        name: {tag: [step for step, _ in one] for tag, one in points.items()}
        for name, points in READERS[tracker](folder).items()
    }


def test_settings_labels_and_the_reason_are_in_mlflow(folder, monkeypatch, tmp_path):
    pytest.importorskip("mlflow", reason="pip install 'fedade[mlflow]' to test this tracker")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    cell = Cell(folder)
    cell.write_rows(1, 2)
    cell.fail("the disk is full")
    export(folder, "mlflow", tmp_path / "elsewhere")
    client = MlflowClient(f"sqlite:///{tmp_path / 'elsewhere' / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name(folder.name).experiment_id])
    assert run.info.status == "FAILED"
    assert run.data.tags.items() >= {"failure": "the disk is full", "schedule": "lin", "seed": "0"}.items()
    assert run.data.params["scenario.num_timesteps"] == str(STEPS)
    assert run.data.params["scenario.corruptions"] == '["fog"]'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", folder.name], "nothing lies about"


def test_settings_are_hyperparameters_in_tensorboard(folder, tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'fedade[tensorboard]' to test this tracker")
    cell = Cell(folder)
    cell.finish()
    export(folder, "tensorboard", tmp_path / "logs")
    (name,) = READERS["tensorboard"](tmp_path / "logs")
    assert name == f"fed-ade-lin-seed-0-{cell.info.address}"
    assert "_hparams_/session_start_info" in READERS["tensorboard"](tmp_path / "logs")[name]
    assert not (folder / "tensorboard").exists()


def test_trackers_leave_a_folder_to_the_run_that_claims_it(tracker, folder, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    trackers_named([tracker], folder)
    assert not folder.exists()


def test_a_server_that_does_not_answer_is_one_line(folder, monkeypatch):
    pytest.importorskip("mlflow", reason="pip install 'fedade[mlflow]' to test this tracker")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(FedadeError, match=r"^MLFLOW_TRACKING_URI: [^\n]*$"):
        trackers_named(["mlflow"], folder)


class Broken:
    """A tracking system that is down."""

    errors = ()

    def record(self, cell):
        raise FedadeError("no answer")


def test_trouble_with_a_tracker_does_not_stop_a_run(tmp_path):
    cell = Cell(tmp_path)
    listener = Tracker(Broken())
    with pytest.warns(RuntimeWarning, match="no answer; the run goes on untracked.*fedade export"):
        listener.on_start(cell.info, 0)
    tell(listener, cell, 1, 3)  # silent from here on: a second warning would be an error
    listener.on_end(cell.info, cell.finish())
    listener.close()
    with pytest.raises(FedadeError, match="no answer"):
        Tracker(Broken(), strict=True).on_start(cell.info, 0)


def test_a_name_that_is_no_tracker_is_one_line(tmp_path):
    with pytest.raises(FedadeError, match="no tracker is called wandb; choose from tensorboard, mlflow"):
        trackers_named(["wandb"], tmp_path)


@pytest.mark.parametrize("name", sorted(TRACKERS))
def test_a_missing_extra_is_one_line(name, tmp_path, monkeypatch):
    def missing(module):
        raise ImportError(f"No module named '{module}'")

    monkeypatch.setattr(importing.importlib, "import_module", missing)
    with pytest.raises(FedadeError, match=rf"pip install 'fedade\[{name}\]'"):
        trackers_named([name], tmp_path)


def test_a_folder_without_rows_has_nothing_to_export(tmp_path):
    Cell(tmp_path)
    with pytest.raises(FedadeError, match="holds no rows yet"):
        export(tmp_path, "tensorboard")
