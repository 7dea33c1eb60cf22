"""A fleet without an end: runs that go on where the last stopped, clients that come back, states of other versions."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedade.core import storage, tree
from fedade.core.errors import FedadeError
from fedade.experiments.settings import merged
from fedade.flower import checkpoint
from fedade.flower.bundle import DEPLOYMENT, init_app
from fedade.flower.client_app import Identity, client_app, make_client
from fedade.flower.overview import read_status
from fedade.flower.server_app import adapt
from fedade.flower.settings import read_task, task_from
from fedade.flower.streams import Folder

from ..helpers import equal
from .conftest import SETTINGS
from .in_process import InProcessGrid
from .test_streams import put
from .test_turns import told

STATES = Path(__file__).parent / "states"


class StoppedError(Exception):
    """The operator has seen enough."""


@pytest.fixture
def taken(monkeypatch):
    """Batches that were taken, in order."""
    names, take = [], Folder.take

    def noted(self, timestep, cursor):
        batch = take(self, timestep, cursor)
        if batch is not None:
            names.append(f"{self.path.name}/{batch.cursor}")
        return batch

    monkeypatch.setattr(Folder, "take", noted)
    return names


@pytest.fixture
def fleet(cache, quick, tmp_path):
    """Two clients with folders of their own; keyword arguments are settings on top."""

    def make(folder: str = "app", **settings) -> tuple[InProcessGrid, object]:
        flower = {
            "stream": {"kind": "folder", "path": "/nowhere"},
            "clients": ["ada", "bob"],
            "share": ["learning_rate"],
            "timestep_seconds": 0.001,
        }
        endless = {"scenario": {"num_clients": 2, "num_timesteps": None}, "flower": flower}
        init_app(tmp_path / folder, merged(merged(SETTINGS, endless), settings), lambda *_: None)
        stored = str(tmp_path / folder / DEPLOYMENT)
        nodes = {
            number: {"client": name, "stream": str(tmp_path / name), "deployment": stored}
            for number, name in ((11, "ada"), (12, "bob"))
        }
        for name in ("ada", "bob"):
            (tmp_path / name).mkdir(exist_ok=True)
        grid = InProcessGrid(client_app(tmp_path / folder), nodes, {"state-dir": str(tmp_path / "state")})
        return grid, read_task(tmp_path / folder)

    return make


def run_until(grid, task, tmp_path, timestep: int, out: str = "out", **options) -> None:
    """Until the server has a checkpoint of a timestep."""

    def tamper(_node, reply):
        if read_status(tmp_path / out).get("timestep", 0) >= timestep:
            raise StoppedError
        return reply

    grid.tamper = tamper
    with pytest.raises(StoppedError):
        adapt(task, grid, tmp_path / out, tmp_path / "app" / DEPLOYMENT, **options)


def test_a_run_without_end_goes_on_and_takes_no_batch_twice(fleet, tmp_path, taken):
    grid, task = fleet()
    assert task.timesteps is None
    for number in range(6):
        put(tmp_path / "ada", f"{number}.npy", 8)
        put(tmp_path / "bob", f"{number}.npy", 8)
    run_until(grid, task, tmp_path, 2)
    run_until(grid, task, tmp_path, 5)
    assert read_status(tmp_path / "out")["timesteps"] is None
    bobs = [name for name in taken if name.startswith("bob")]
    assert bobs == [f"bob/{number}.npy" for number in range(5)]
    adas = [name for name in taken if name.startswith("ada")]
    # She answered a server that stopped before it counted that, and takes the batch again from where she counted.
    assert adas == [f"ada/{number}.npy" for number in (0, 1, 2, 2, 3, 4, 5)]


def test_a_new_run_goes_on_from_every_clients_state_and_stream(fleet, tmp_path, taken):
    grid, task = fleet()
    for name in ("ada", "bob"):
        for number in range(3):
            put(tmp_path / name, f"{number}.npy", 8)
    run_until(grid, task, tmp_path, 3)
    (before,) = (tmp_path / "state" / "ada").iterdir()
    learned = make_client(task, identity(grid, tmp_path), before.name).store
    last = max(int(path.stem.removeprefix("turn-")) for path in before.glob("turn-*"))
    taken.clear()
    for name in ("ada", "bob"):
        put(tmp_path / name, "3.npy", 8)
    client = make_client(task, identity(grid, tmp_path), "second")
    assert equal(client.beginning.client, learned.load(last).client)
    run_until(grid, task, tmp_path, 1, out="second", after=tmp_path / "out")
    assert set(taken) <= {"ada/3.npy", "bob/3.npy"}
    assert "bob/3.npy" in taken
    told_first = next(
        message for message in grid.sent[::-1] if message.content.config_records["config"].get("turn") == 0
    )
    assert told_first.content.config_records["config"]["version"] == 1  # the layers that the first run ended with


def identity(grid, tmp_path) -> Identity:
    return Identity.of(grid.nodes[11], {"state-dir": str(tmp_path / "state")})


def test_another_method_inherits_the_place_in_the_stream_alone(fleet, tmp_path):
    grid, task = fleet()
    put(tmp_path / "ada", "0.npy", 8)
    put(tmp_path / "bob", "0.npy", 8)
    run_until(grid, task, tmp_path, 1)
    grid, other = fleet("other", methods=["tent"])
    client = make_client(other, identity(grid, tmp_path), "second")
    assert client.beginning.cursor == "0.npy"
    assert equal(client.beginning.client, client.store.form)


def test_a_client_that_was_away_for_fifty_timesteps_is_served_at_once(fleet, tmp_path, taken, caplog):
    grid, task = fleet(methods=["tent"], flower={"min_clients": 1})
    for number in range(60):
        put(tmp_path / "ada", f"{number:02d}.npy", 4)
    put(tmp_path / "bob", "00.npy", 4)
    put(tmp_path / "bob", "01.npy", 4)
    run_until(grid, task, tmp_path, 1)
    grid.online.discard(12)
    run_until(grid, task, tmp_path, 51)
    assert [name for name in taken if name.startswith("bob")].count("bob/01.npy") <= 1
    grid.online.add(12)
    taken.clear()
    caplog.clear()
    run_until(grid, task, tmp_path, 52)
    assert "bob/01.npy" in taken
    assert "lost its state" not in caplog.text


def test_files_of_rows_are_joined_before_there_are_many(fleet, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "MOST_FILES", 3)
    grid, task = fleet(methods=["tent"])
    for number in range(8):
        put(tmp_path / "ada", f"{number}.npy", 4)
    run_until(grid, task, tmp_path, 8)
    (place,) = {path.parent for path in (tmp_path / "out").glob("cells/**/rows-*.parquet")}
    assert len(list(place.glob("rows-*"))) <= 4
    rows = checkpoint.rows(place, 10**6)
    assert sorted({row["timestep"] for row in rows if row["client"] == 0}) == [*range(1, 8)]


@pytest.mark.parametrize(
    ("flower", "reason"),
    [({}, "needs a real stream"), ({"stream": {"kind": "folder", "path": "/d"}}, r"flower\.timestep_seconds")],
)
def test_an_end_that_is_missing_is_told(flower, reason):
    with pytest.raises(FedadeError, match=reason):
        task_from({"scenario": {"num_timesteps": None}, "flower": flower, "deployment": "0"})


@pytest.mark.parametrize("version", sorted(path.name for path in STATES.iterdir()))
def test_states_of_every_version_are_read_and_gone_on_from(make_task, tmp_path, version):
    """Each folder holds a state as a release wrote it, and what it holds; never change one, add the next."""
    expected = storage.read_json(STATES / version / "expected.json")
    shutil.copytree(STATES / version, tmp_path / "client-0001" / "run")
    who = Identity.of({"client": "client-0001", "state-dir": str(tmp_path)}, {})
    client = make_client(make_task(scenario={"num_timesteps": 6}), who, "run")
    state = client.store.load(expected["turn"])
    assert (state.cursor, state.timestep, state.round_key) == tuple(expected["told"])
    sums = [float(leaf.double().sum()) for leaf in tree.leaves(state.client)]
    np.testing.assert_allclose(sums, expected["sums"], rtol=1e-6)
    assert len(state.shared) == expected["shared"]
    assert client.take_turn(told(expected["turn"] + 1, 2, base=expected["turn"])).outcome == "done"
