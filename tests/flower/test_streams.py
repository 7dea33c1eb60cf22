"""Real streams: a folder, and a function by import path; a client without new data sits the round out."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.core.paths import cache_dir
from fedade.experiments.settings import merged
from fedade.flower.bundle import init_app
from fedade.flower.client_app import client_app
from fedade.flower.overview import read_status, troubles
from fedade.flower.server_app import adapt, serve
from fedade.flower.settings import FolderStream, ImportedStream, read_task
from fedade.flower.streams import START, BadBatchError, Folder, own_labelled, real_stream
from fedade.reporting.results import NO_LABELS
from fedade.scenarios.building import build_scenario

from .conftest import SETTINGS
from .in_process import InProcessGrid
from .traces import told

SHAPE = (1, 8, 8)


def put(folder: Path, name: str, count: int = 3) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / name, np.random.default_rng(count).integers(0, 255, (count, *SHAPE), dtype=np.uint8))


def test_a_folder_gives_its_files_in_the_order_of_their_names(tmp_path):
    put(tmp_path, "b.npy", 2)
    put(tmp_path, "a.npy", 1)
    np.savez(tmp_path / "c.npz", inputs=np.zeros((3, *SHAPE)))
    put(tmp_path, ".being-written.npy", 9)
    stream, cursor, sizes = Folder(tmp_path), START, []
    while batch := stream.take(1, cursor):
        sizes.append(len(batch.inputs))
        cursor = batch.cursor
    assert sizes == [1, 2, 3]
    assert cursor == "c.npz"
    put(tmp_path, "d.npy", 4)
    assert len(stream.take(2, cursor).inputs) == 4


def test_pixels_stay_and_other_numbers_become_single_precision(tmp_path):
    put(tmp_path, "a.npy")
    np.save(tmp_path / "b.npy", np.zeros((2, *SHAPE)))
    assert Folder(tmp_path).take(1, START).inputs.dtype == torch.uint8
    assert Folder(tmp_path).take(1, "a.npy").inputs.dtype == torch.float32


def test_what_is_no_batch_is_named(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"not numbers")
    with pytest.raises(FedadeError, match=r"a.npy is not a batch"):
        Folder(tmp_path).take(1, START)
    with pytest.raises(FedadeError, match="does not exist"):
        Folder(tmp_path / "missing").take(1, START)


def test_pickles_are_never_opened(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"an": "object"}]), allow_pickle=True)
    with pytest.raises(FedadeError, match="is not a batch"):
        Folder(tmp_path).take(1, START)


def test_a_node_may_name_another_folder(tmp_path):
    settings = FolderStream(kind="folder", path=Path("/nowhere"))
    assert real_stream(settings, "a", str(tmp_path)) == Folder(tmp_path)


def test_a_function_is_asked_for_what_comes_after_the_batches_taken(tmp_path, monkeypatch):
    (tmp_path / "my_batches.py").write_text(
        "def batches(client, taken):\n    for number in range(taken, 2):\n        yield [[len(client), number]]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    stream = real_stream(ImportedStream(kind="import", path="my_batches:batches"), "ada", None)
    first = stream.take(1, START)
    assert first.inputs.tolist() == [[3.0, 0.0]]
    second = stream.take(2, first.cursor)
    assert second.inputs.tolist() == [[3.0, 1.0]]
    assert stream.take(3, second.cursor) is None
    sys.modules.pop("my_batches")


def test_a_function_that_is_not_there_is_named():
    with pytest.raises(FedadeError, match="nowhere:batches cannot be imported"):
        real_stream(ImportedStream(kind="import", path="nowhere:batches"), "a", None)


@pytest.fixture
def clinic(cache, tmp_path, quick):
    """Two clients with folders of their own, on the deployment that `init` stored."""
    said = {"flower": {"stream": {"kind": "folder", "path": "/unset"}, "clients": ["ada", "bob"]}}
    above = {"scenario": {"num_clients": 2, "num_timesteps": 3}, "protocol": {"rounds": 1, "participation": 1.0}}
    init_app(tmp_path / "app", merged(merged(SETTINGS, above), said), lambda *_: None)
    nodes = {
        number: {
            "client": name,
            "stream": str(tmp_path / name),
            "deployment": str(tmp_path / "app" / "deployment.safetensors"),
        }
        for number, name in ((11, "ada"), (12, "bob"))
    }
    grid = InProcessGrid(client_app(tmp_path / "app"), nodes, {"state-dir": str(tmp_path / "state")})
    return grid, read_task(tmp_path / "app")


def test_a_client_without_new_data_sits_out_and_the_others_go_on(clinic, tmp_path):
    grid, task = clinic
    for name in ("1.npy", "2.npy", "3.npy"):
        put(tmp_path / "ada", name, 5)
    put(tmp_path / "bob", "1.npy", 4)
    serve(task, grid, tmp_path / "out", tmp_path / "app" / "deployment.safetensors")
    assert (tmp_path / "out" / "report.html").exists()
    rows = told(task, tmp_path / "out")
    assert trace.column(trace.where(rows, client=0), "n").tolist() == [5, 5, 5]
    assert trace.column(trace.where(rows, client=1), "n").tolist() == [4, 0, 0]
    assert trace.column(trace.where(rows, client=1), "participated").tolist() == [1, 0, 0]
    assert np.isnan(trace.column(rows, "accuracy_post")).all()  # nobody has labels
    page = (tmp_path / "out" / "report.html").read_text()
    assert ">nan" not in page
    assert NO_LABELS in page


def test_what_a_killed_node_has_left_in_whichever_run_is_swept(clinic, tmp_path):
    grid, task = clinic
    put(tmp_path / "ada", "1.npy", 5)
    put(tmp_path / "bob", "1.npy", 5)
    dead = [
        tmp_path / "ada" / "predictions" / ".0.npy.1-1.tmp",
        tmp_path / "state" / "ada" / "earlier" / ".turn-00000003.safetensors.1-1.tmp",
        tmp_path / "state" / "ada" / "..message.1-1.tmp",
    ]
    for path in dead:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    adapt(task, grid, tmp_path / "out", tmp_path / "app" / "deployment.safetensors")
    assert [path for path in dead if path.exists()] == []


def test_a_stored_deployment_is_the_one_that_was_built(clinic, cache, tmp_path):
    from fedade.flower.bundle import read_bundle

    _, task = clinic
    stored = read_bundle(tmp_path / "app" / "deployment.safetensors", task.deployment)
    built = build_scenario(task.experiment.scenario, 0, "cpu", cache_dir(), lambda *_: None).deployment
    inputs = built.reference.inputs
    assert torch.equal(stored.network.logits(stored.parameters, inputs), built.network.logits(built.parameters, inputs))


def test_another_deployment_than_the_apps_is_refused(clinic, tmp_path):
    from fedade.flower.bundle import read_bundle

    path = tmp_path / "app" / "deployment.safetensors"
    with pytest.raises(FedadeError, match="is not the one of this app"):
        read_bundle(path, "0" * 64)
    with pytest.raises(FedadeError, match="is missing; copy the file"):
        read_bundle(tmp_path / "none", "0" * 64)
    assert storage.read_yaml(tmp_path / "app" / "fedade.yaml")["flower"]["share"] == []


def labelled_file(path: Path, shape: tuple[int, ...] = SHAPE, labels: object = (0, 1, 2)) -> Path:
    np.savez(path, inputs=np.zeros((3, *shape), np.uint8), labels=np.array(labels))
    return path


def test_a_clients_own_labelled_data_are_a_file_on_its_host(tmp_path, scenario_factory):
    deployment = scenario_factory().deployment
    own = own_labelled(labelled_file(tmp_path / "own.npz"), deployment)
    assert own.inputs.shape == (3, *SHAPE)
    assert own.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda path: path, "cannot be read"),
        (lambda path: labelled_file(path, (1, 9, 9)), "expected"),
        (lambda path: labelled_file(path, labels=(0, 1, 99)), "class numbers from 0 to 9"),
        (lambda path: labelled_file(path, labels=(0, 1)), "must be 3 class numbers"),
    ],
    ids=["missing", "misshapen", "unknown class", "too few labels"],
)
def test_broken_labelled_data_are_one_line(tmp_path, scenario_factory, broken, told):
    with pytest.raises(FedadeError, match=told):
        own_labelled(broken(tmp_path / "own.npz"), scenario_factory().deployment)


def damaged_archive(path: Path) -> None:
    """Compressed arrays of which the first bytes were lost: zlib complains in its own words."""
    content = io.BytesIO()
    np.savez_compressed(content, inputs=np.zeros((3, *SHAPE), np.uint8))
    whole = bytearray(content.getvalue())
    whole[70:80] = b"\xff" * 10
    path.write_bytes(whole)


GARBAGE = {
    "bytes": lambda path: path.write_bytes(b"not numbers"),
    "empty": lambda path: path.write_bytes(b""),
    "shape": lambda path: np.save(path, np.zeros((3, 2, 2), np.uint8)),
    "nan": lambda path: np.save(path, np.full((3, *SHAPE), np.nan)),
    "text": lambda path: np.save(path, np.array(["spam"])),
    "folder": lambda path: path.mkdir(),
    "damaged": damaged_archive,
    "too many": lambda path: np.save(path, np.zeros((10_001, *SHAPE), np.uint8)),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_a_bad_batch_costs_its_own_client_one_timestep_and_nobody_else_anything(clinic, tmp_path, caplog, kind):
    grid, task = clinic
    for name in ("1.npy", "2.npy", "3.npy"):
        put(tmp_path / "ada", name, 5)
        put(tmp_path / "bob", name, 4)
    (tmp_path / "bob" / "2.npy").unlink()
    GARBAGE[kind](tmp_path / "bob" / "2.npy")
    with caplog.at_level("WARNING", "flwr.fedade"):
        serve(task, grid, tmp_path / "out", tmp_path / "app" / "deployment.safetensors")
    rows, status = told(task, tmp_path / "out"), read_status(tmp_path / "out")
    assert trace.column(trace.where(rows, client=0), "n").tolist() == [5, 5, 5]
    assert trace.column(trace.where(rows, client=1), "n").tolist() == [4, 0, 4]
    assert status["quarantined"] == {"bob": 1}
    assert (status["refused"], status["unanswered"]) == ({}, 0)
    assert "bob set a bad batch aside in turn 1" in caplog.text
    assert troubles(status) == ["bad batches set aside: bob 1"]
    (reason,) = (tmp_path / "state" / "bob").rglob("quarantine/*")
    assert reason.name == "2.npy.txt"
    assert "2.npy" in reason.read_text()
    assert (tmp_path / "bob" / "2.npy").exists()  # whoever sends it may still want to see it


def test_a_bad_batch_of_a_function_is_set_aside_too(tmp_path, monkeypatch):
    (tmp_path / "odd_batches.py").write_text("def batches(client, taken):\n    yield [{'an': 'object'}]\n")
    monkeypatch.syspath_prepend(tmp_path)
    stream = real_stream(ImportedStream(kind="import", path="odd_batches:batches"), "ada", None)
    with pytest.raises(BadBatchError, match="batch 3 ") as raised:
        stream.take(1, "2")
    assert raised.value.cursor == "3"
    sys.modules.pop("odd_batches")
