"""Who may join, submit and be believed: what the gate, the registration and a node refuse."""

import asyncio
import hashlib
import os
import stat
from pathlib import Path

import httpx
import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.proto.fab_pb2 import Fab, GetFabResponse

from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.experiments.settings import merged
from fedade.flower.admission import is_signed, public_keys, sign_app
from fedade.flower.bundle import init_app, write_app
from fedade.flower.certificates import LOOPBACK, TRUSTED, make_certificates
from fedade.flower.client_app import client_app
from fedade.flower.members import Roster
from fedade.flower.server_app import adapt
from fedade.flower.services import Gate
from fedade.flower.settings import read_task, task_from

from .conftest import SETTINGS
from .in_process import InProcessGrid
from .traces import told


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, LOOPBACK, ["ada", "bob"], days=1)
    return folder


def call(gate: Gate, method: str, path: str, **options) -> httpx.Response:
    """One call from outside, whose path goes as it is."""
    app = gate.app()

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as client:
            request = client.build_request(method, "https://gate/", **options)
            request.url = request.url.copy_with(raw_path=path.encode())
            return await client.send(request)

    return asyncio.run(send())


@pytest.fixture
def gate(certificates):
    """A gate, and the calls that came through it."""
    passed = []

    def superlink(request: httpx.Request) -> httpx.Response:
        passed.append((request.method, request.url.raw_path.decode(), request.headers.get("flwr-signature")))
        return httpx.Response(200, content=b"answer", headers={"content-type": "application/protobuf"})

    return Gate("127.0.0.1:1", certificates, most_bytes=1000, transport=httpx.MockTransport(superlink)), passed


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/control/start-run"),
        ("POST", "/v1/control/register-node"),
        ("POST", "/v1/runtime/acquire-task"),
        ("POST", "/v1/fleet/../control/start-run"),
        ("POST", "/v1/fleet/%2e%2e/control/start-run"),
        ("POST", "/v1/fleet/pull-messages/../../control/start-run"),
        ("POST", "//v1/control/start-run"),
        ("POST", "/V1/CONTROL/start-run"),
        ("GET", "/v1/fleet/pull-messages"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
    ],
)
def test_the_gate_lets_no_call_through_that_is_not_a_nodes(gate, method, path):
    door, passed = gate
    assert call(door, method, path).status_code == 403
    assert not passed


def test_calls_of_nodes_pass_with_their_signature_and_come_back_whole(gate):
    door, passed = gate
    answer = call(door, "POST", "/v1/fleet/pull-messages", content=b"x" * 1000, headers={"flwr-signature": "abc"})
    assert (answer.status_code, answer.content) == (200, b"answer")
    assert passed == [("POST", "/v1/fleet/pull-messages", "abc")]


def test_calls_that_are_too_large_are_refused_before_they_are_read(gate):
    door, passed = gate

    async def pieces():
        for _ in range(3):
            yield b"x" * 500

    for content in (b"x" * 1001, pieces()):
        assert call(door, "POST", "/v1/fleet/push-object", content=content).status_code == 413
    assert not passed


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")
def test_nodes_believe_the_operators_signature_and_no_other(tmp_path, certificates):
    for name, method in (("signed", "tent"), ("other", "source")):
        write_app(tmp_path / name, task_from({"methods": [method]}))
    path = sign_app(tmp_path / "signed", certificates)
    make_certificates(tmp_path / "strangers", LOOPBACK, (), days=1)

    def believed(app: str, folder: Path) -> bool:
        content = build_fab_from_disk(tmp_path / app)
        shown = GetFabResponse(fab=Fab(hash_str="0", content=content)).SerializeToString()
        transport = httpx.MockTransport(lambda _request: httpx.Response(200, content=shown))
        answer = call(Gate("127.0.0.1:1", certificates, transport=transport), "POST", "/v1/fleet/get-fab")
        fab = GetFabResponse.FromString(answer.content).fab
        return is_signed(fab.content, fab.verifications, folder / TRUSTED)

    assert path.stem == hashlib.sha256(build_fab_from_disk(tmp_path / "signed")).hexdigest()
    assert believed("signed", certificates)
    assert not believed("other", certificates)
    assert not believed("signed", tmp_path / "strangers")


def test_every_name_has_a_key_of_its_own(certificates, tmp_path):
    assert list(public_keys(certificates)) == ["ada", "bob"]
    for name in ("ada", "eve"):
        (tmp_path / "nodes" / name).mkdir(parents=True)
        copied = (certificates / "nodes" / "ada" / "node.key.pub").read_bytes()
        (tmp_path / "nodes" / name / "node.key.pub").write_bytes(copied)
    with pytest.raises(FedadeError, match=r"eve.*another client's key"):
        public_keys(tmp_path)


def test_a_node_speaks_for_the_name_of_its_key_and_for_no_other(caplog):
    roster = Roster(["ada", "bob"], lambda: {1: "ada", 2: "mallory"})
    roster.welcome("ada", 2, [1, 2, 3])
    roster.welcome("ada", 3, [1, 2, 3])
    assert roster.connected == 0
    assert "node 2 calls itself 'ada', but its key is registered for 'mallory'; refused" in caplog.text
    roster.welcome("ada", 1, [1, 2, 3])
    assert [member.node for member in roster] == [1, None]
    assert roster.impostors == {"mallory": 1, "nobody": 1}
    assert roster.strangers([1, 2, 3]) == []


def test_an_impostor_gets_no_turn_and_is_named(make_task, make_grid, tmp_path, monkeypatch):
    task = make_task(methods=["tent"], scenario={"num_clients": 2})
    grid = make_grid(task, ["client-0000", "client-0001", "client-0000"])
    honest = {grid.nodes[node]["client"]: node for node in grid.nodes}
    impostor = next(node for node in grid.nodes if node not in honest.values())
    storage.write_json(tmp_path / "nodes.json", {str(node): name for name, node in honest.items()})
    monkeypatch.setenv("FEDADE_NODES", str(tmp_path / "nodes.json"))
    adapt(task, grid, tmp_path / "out")
    turns = [message for message in grid.sent if message.metadata.message_type == "train.turn"]
    assert turns
    assert impostor not in {message.metadata.dst_node_id for message in turns}
    assert storage.read_json(tmp_path / "out" / "flower.json")["impostors"] == {"nobody": 1}


STREAM = """
import numpy as np

def batches(client, taken):
    yield np.zeros((5, 1, 8, 8), dtype=np.uint8)
"""


def test_an_app_may_name_no_module_that_its_node_has_not_allowed(cache, quick, tmp_path, monkeypatch, caplog):
    (tmp_path / "streams_of_a_stranger.py").write_text(STREAM)
    monkeypatch.syspath_prepend(tmp_path)
    stream = {"kind": "import", "path": "streams_of_a_stranger:batches"}
    flower = {"stream": stream, "clients": ["ada", "bob"], "retries": 0, "timeout_seconds": 2.0}
    above = {"scenario": {"num_clients": 2, "num_timesteps": 1}, "methods": ["tent"], "flower": flower}
    init_app(tmp_path / "app", merged(SETTINGS, above), lambda *_: None)
    stored = tmp_path / "app" / "deployment.safetensors"
    said = {"ada": "numpy streams_of_a_stranger", "bob": "streams_of_a_stranger.other"}
    nodes = {
        number: {"client": name, "imports": imports, "deployment": str(stored)}
        for number, (name, imports) in enumerate(said.items(), 11)
    }
    grid = InProcessGrid(client_app(tmp_path / "app"), nodes, {"state-dir": str(tmp_path / "state")})
    task = read_task(tmp_path / "app")
    adapt(task, grid, tmp_path / "out", stored)
    assert trace.column(told(task, tmp_path / "out"), "n").tolist() == [5, 0]
    assert "this host does not allow the import of streams_of_a_stranger" in caplog.text


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "", "."])
def test_certificates_are_written_inside_their_folder_only(tmp_path, name):
    with pytest.raises(FedadeError, match="is no client name"):
        make_certificates(tmp_path / "certs", [], [name], days=1)
    assert not list(tmp_path.iterdir())


def test_an_empty_key_is_named_and_not_kept_in_silence(tmp_path):
    make_certificates(tmp_path, [], ["ada"], days=1)
    key = tmp_path / "nodes" / "ada" / "node.key"
    key.write_bytes(b"")
    with pytest.raises(FedadeError, match=r"node\.key holds no private key; delete it"):
        make_certificates(tmp_path, [], ["ada"], days=1)
    key.unlink()
    os.unlink(key.with_name("node.key.pub"))
    make_certificates(tmp_path, [], ["ada"], days=1)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_states_of_clients_are_their_owners_alone(make_task, served, tmp_path):
    """They hold the client's last batch."""
    served(make_task(methods=["tent"], scenario={"num_clients": 1, "num_timesteps": 1}))
    paths = list((tmp_path / "state").rglob("*"))
    assert any(path.suffix == ".safetensors" for path in paths)
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}
