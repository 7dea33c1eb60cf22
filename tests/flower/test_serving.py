"""Predictions of a client: beside its batches, at its socket while it learns, and from its state on disk."""

import http.client
import io
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.errors import FedadeError
from fedade.experiments.settings import merged
from fedade.flower import endpoint
from fedade.flower.bundle import DEPLOYMENT, init_app
from fedade.flower.client_app import Identity, make_client
from fedade.flower.endpoint import SOCKET, NodeClient, node_or_state, served_at
from fedade.flower.serving import Served, remember_node, restore
from fedade.flower.settings import CONFIG, read_task

from .conftest import SETTINGS
from .test_streams import put
from .test_turns import told


@pytest.fixture
def place():
    """A short path, as sockets need."""
    with tempfile.TemporaryDirectory(prefix="f") as short:
        yield Path(short)


@pytest.fixture
def app(cache, place):
    flower = {"stream": {"kind": "folder", "path": str(place / "batches")}, "clients": ["ada"]}
    init_app(place / "app", merged(SETTINGS, {"flower": flower}), lambda *_: None)
    return place / "app"


@pytest.fixture
def client(app, place):
    node_config = {"client": "ada", "state-dir": str(place), "deployment": str(app / DEPLOYMENT)}
    (place / "ada" / "run").mkdir(parents=True)
    made = make_client(read_task(app), Identity.of(node_config, {}), "run")
    shutil.copy(app / CONFIG, place / "ada" / "run" / CONFIG)
    remember_node(made, node_config, {})
    return made


def batch(count: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (count, 1, 8, 8), dtype=np.uint8)


def test_predictions_are_written_beside_each_batch_and_are_those_of_the_adapter(client, place):
    put(place / "batches", "000.npy", 12)
    client.take_turn(told(0, 1))
    written = np.load(place / "batches" / "predictions" / "000.npy")
    np.testing.assert_array_equal(written, client.adapter.predict(np.load(place / "batches" / "000.npy")))
    put(place / "batches", "001.npy", 9)
    client.take_turn(told(1, 2, base=0))
    assert sorted(path.name for path in (place / "batches" / "predictions").iterdir()) == ["000.npy", "001.npy"]
    final = np.load(place / "batches" / "predictions" / "000.npy")
    assert not np.array_equal(final, written)  # the personal step of the round came with the next message
    assert client.take_turn(told(2, 3, base=1)).outcome == "no-data"  # predictions are no batches


def test_where_predictions_cannot_be_written_the_turn_goes_on(client, place, caplog):
    put(place / "batches", "000.npy", 12)
    (place / "batches" / "predictions").write_text("in the way")
    assert client.take_turn(told(0, 1)).outcome == "done"
    assert "predictions of 000.npy are not written" in caplog.text


def test_a_socket_answers_as_the_adapter_and_refuses_what_is_no_batch(client, place):
    put(place / "batches", "000.npy", 12)
    served = Served("ada")
    with served_at(place / SOCKET, served), NodeClient(place / SOCKET) as node:
        with pytest.raises(FedadeError, match="learned nothing yet"):
            node.predict(batch(3))
        client.take_turn(told(0, 1), served.publish)
        np.testing.assert_array_equal(node.predict(batch(3)), client.adapter.predict(batch(3)))
        for wrong in (np.zeros((2, 3)), np.array(["text"])):
            with pytest.raises(FedadeError, match=r"shape|read"):
                node.predict(wrong)
        with pytest.raises(FedadeError, match="there are /status and /predict"):
            node._ask("GET", "/elsewhere")
        status = node.status()
        assert (status["timestep"], status["batch"], status["waiting"], status["requests"]) == (1, "000.npy", 0, 1)
        assert (place / SOCKET).stat().st_mode & 0o077 == 0
    assert not (place / SOCKET).exists()


KINDS = ["u1", "<f4", ">f4", "<f8", "?", "<i8", "S3", "<U2"]


@pytest.mark.parametrize("kind", KINDS)
@given(shape=st.lists(st.integers(0, 4), max_size=4).map(tuple), fortran=st.booleans(), seed=st.integers(0, 99))
def test_arrays_travel_as_numpys_own_files(kind, shape, fortran, seed):
    drawn = np.random.default_rng(seed).integers(0, 99, shape).astype(kind)
    array, theirs = np.asarray(drawn, order="F" if fortran else "C"), io.BytesIO()
    np.save(theirs, array)
    for read in (np.load(io.BytesIO(endpoint.bytes_of(array))), endpoint.array_of(theirs.getvalue())):
        assert (read.shape, read.dtype) == (array.shape, array.dtype)
        np.testing.assert_array_equal(read, array)


@given(st.integers(0, 200))
def test_a_file_that_is_cut_off_is_refused(kept):
    whole = endpoint.bytes_of(np.arange(20.0))
    with pytest.raises(FedadeError, match="cannot be read"):
        endpoint.array_of(whole[: min(kept, len(whole) - 1)])


@pytest.mark.parametrize("compressed", [False, True])
def test_whatever_is_wrong_with_a_file_is_told_in_one_kind_of_error(compressed):
    """NumPy, zipfile, zlib and the tokeniser complain in kinds of their own."""
    file, drawn = io.BytesIO(), np.random.default_rng(0)
    (np.savez_compressed if compressed else np.savez)(file, inputs=np.arange(60.0))
    plain = endpoint.bytes_of(np.arange(60.0))
    for whole in [file.getvalue(), plain[:128]] * 150:
        content = bytearray(whole)
        for place in drawn.integers(8, len(content), 2):
            content[place] = drawn.integers(256)
        with suppress(FedadeError):
            endpoint.array_of(bytes(content))


def test_objects_are_neither_sent_nor_read():
    with pytest.raises(FedadeError, match="convert it"):
        endpoint.bytes_of(np.array([{}]))
    file = io.BytesIO()
    np.save(file, np.array([{}]), allow_pickle=True)
    with pytest.raises(FedadeError, match="never unpickled"):
        endpoint.array_of(file.getvalue())


def test_a_restarted_node_serves_the_same_predictions_before_it_hears_of_the_server(client, place):
    put(place / "batches", "000.npy", 12)
    client.take_turn(told(0, 1))
    client.take_turn(told(1, 1, base=0))
    expected = client.adapter.predict(batch(20))
    served = Served("ada")
    assert restore(served, place / "ada")
    np.testing.assert_array_equal(served.predict(batch(20)), expected)
    assert served.status()["batch"] == "000.npy"
    assert not restore(Served("bob"), place / "bob")


def test_the_shared_layers_that_came_last_are_kept_to_predict_with(client, place):
    put(place / "batches", "000.npy", 12)
    sent = client.take_turn(told(0, 1)).uplink
    client.take_turn(told(1, 1, base=0, version=1, shared={name: 1.1 * value for name, value in sent.items()}))
    expected = client.adapter.predict(batch(20))
    served = Served("ada")
    restore(served, place / "ada")
    np.testing.assert_array_equal(served.predict(batch(20)), expected)


def test_the_command_predicts_from_the_state_where_no_node_runs(client, place):
    put(place / "batches", "000.npy", 12)
    client.take_turn(told(0, 1))
    np.save(place / "inputs.npy", batch(4))
    words = ["flower", "predict", str(place / "ada"), str(place / "inputs.npy"), "--json"]
    done = subprocess.run([sys.executable, "-m", "fedade", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["probabilities"]
    np.testing.assert_allclose(found, client.adapter.predict(batch(4)), rtol=1e-5)
    with pytest.raises(FedadeError, match="holds no state"), node_or_state(place / "nobody"):
        pass


def test_a_path_that_is_too_long_for_a_socket_is_told_and_costs_only_the_endpoint(tmp_path, caplog):
    with served_at(tmp_path / ("x" * endpoint.LONGEST_PATH), Served("ada")):
        pass
    assert "too long for a socket" in caplog.text


@pytest.mark.slow
def test_a_thousand_requests_while_rounds_run_are_all_answered_by_one_state_or_the_next(client, place):
    asked, expected, wrong, answers = batch(10), [], [], []
    for number in range(6):
        put(place / "batches", f"{number:03d}.npy", 12)
    served = Served("ada")
    client.take_turn(told(0, 1), served.publish)
    adopt = client.adapter.adopt
    expected.append(client.adapter.predict(asked))

    def adopting(*values):
        adopt(*values)
        expected.append(client.adapter.predict(asked))

    object.__setattr__(client.adapter, "adopt", adopting)

    def ask() -> None:
        with NodeClient(place / SOCKET) as node:
            for _ in range(250):
                try:
                    answers.append(node.predict(asked))
                except (OSError, FedadeError, http.client.HTTPException) as error:
                    wrong.append(error)

    with served_at(place / SOCKET, served):
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        turn = 1
        while any(thread.is_alive() for thread in threads):
            client.take_turn(told(turn, 1 + turn // 3, base=turn - 1), served.publish)
            turn += 1
        for thread in threads:
            thread.join()
    assert not wrong
    assert len(answers) == 1000
    known = {state.numpy().tobytes() for state in expected}
    assert len(known) > 3
    assert all(answer.tobytes() in known for answer in answers)
