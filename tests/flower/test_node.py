"""The resident program of a client: what it takes of an app, when it asks, and that there is one."""

import hashlib
import io
import os
import signal
import time
import zipfile
from types import SimpleNamespace

import filelock
import httpx
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError
from flwr.supercore.task_identity import TaskIdentity

from fedade.core.errors import FedadeError
from fedade.flower import fleet_link, node
from fedade.flower.client_app import Identity
from fedade.flower.fleet_link import Address, FleetLink
from fedade.flower.node import LONGEST_WAIT, SHORTEST_WAIT, Node, run_node
from fedade.flower.processes import ProcessGroup
from fedade.flower.serving import Served

from .deployments import Live
from .traces import assert_same, simulated, told


@pytest.fixture(autouse=True)
def in_a_run():
    """Messages ask the process who it is; inside a run, Flower has told it."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def bundle(**files: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as written:
        for name, text in files.items():
            written.writestr(name.replace("__", "."), text)
    return content.getvalue()


def link_that_serves(monkeypatch, content: bytes, fab_hash: str) -> FleetLink:
    """A link whose SuperLink names and sends a bundle."""
    link = FleetLink(Address("127.0.0.1:1", None, None))
    monkeypatch.setattr(link._client, "GetRun", lambda _: SimpleNamespace(run=None))
    monkeypatch.setattr(link._client, "GetFab", lambda _: SimpleNamespace(fab=None))
    monkeypatch.setattr(fleet_link, "run_from_proto", lambda _: SimpleNamespace(fab_hash=fab_hash, override_config={}))
    monkeypatch.setattr(fleet_link, "fab_from_proto", lambda _: SimpleNamespace(content=content))
    monkeypatch.setattr(fleet_link, "get_fused_config_from_fab", lambda *_: {"out": "here"})
    return link


def test_of_an_app_only_its_configuration_is_taken(monkeypatch):
    content = bundle(fedade__yaml="methods: [tent]", client__py="raise SystemExit")
    link = link_that_serves(monkeypatch, content, hashlib.sha256(content).hexdigest())
    app = link.app_of(7)
    assert (app.config, app.run_config) == (b"methods: [tent]", {"out": "here"})


@pytest.mark.parametrize(
    ("content", "named", "reason"),
    [
        (bundle(fedade__yaml="methods: [tent]"), "0" * 64, "another app"),
        (bundle(client__py=""), None, r"no fedade\.yaml"),
        (b"no bundle", None, r"no fedade\.yaml"),
        (bundle(fedade__yaml="#" * (2**20 + 1)), None, "more than"),
    ],
)
def test_an_app_that_is_none_is_refused(monkeypatch, content, named, reason):
    link = link_that_serves(monkeypatch, content, named or hashlib.sha256(content).hexdigest())
    with pytest.raises(FedadeError, match=reason):
        link.app_of(7)


def test_a_node_asks_soon_in_a_run_and_rarely_in_a_night(tmp_path, monkeypatch):
    silent = SimpleNamespace(receive=lambda: None)
    idle = Node(silent, {}, Identity.of({"client": "ada", "state-dir": str(tmp_path)}, {}), Served("ada"))
    assert idle.serve() == SHORTEST_WAIT
    monkeypatch.setattr(idle, "_last", time.monotonic() - 3600)
    assert idle.serve() == LONGEST_WAIT


def test_a_client_has_one_node_at_a_time(tmp_path):
    (tmp_path / "ada").mkdir()
    with filelock.FileLock(tmp_path / "ada" / ".node.lock"), pytest.raises(FedadeError, match="runs already"):
        run_node(Address("127.0.0.1:1", None, None), {"client": "ada", "state-dir": str(tmp_path)})


def test_what_fails_before_a_turn_is_told_to_the_clients_log_alone(tmp_path, caplog):
    sent = []

    def refuse(_run: int) -> None:
        raise FedadeError("cannot write /home/ada/secret")

    message = Message(RecordDict(), dst_node_id=1, message_type="train.turn")
    link = SimpleNamespace(receive=lambda: message, app_of=refuse, send=lambda answer, _: sent.append(answer))
    assert Node(link, {}, Identity.of({"client": "ada", "state-dir": str(tmp_path)}, {}), Served("ada")).serve() == 0
    assert "secret" not in sent[0].error.reason
    assert "secret" in caplog.text


def test_a_message_that_was_in_hand_when_the_process_died_is_given_up(tmp_path):
    message = Message(RecordDict(), dst_node_id=1, message_type="train.turn")
    message.metadata.__dict__["_message_id"] = "in-hand"
    identity = Identity.of({"client": "ada", "state-dir": str(tmp_path)}, {})

    def die(*_):
        raise KeyboardInterrupt

    dying = Node(SimpleNamespace(receive=lambda: message, app_of=die), {}, identity, Served("ada"))
    with pytest.raises(KeyboardInterrupt):
        dying.serve()
    link, sent = FleetLink(Address("127.0.0.1:1", None, None)), []
    link.send = lambda answer, _seconds: sent.append(answer)
    reborn = Node(link, {}, identity, Served("ada"))
    reborn.begin()
    reborn.begin()
    (answer,) = sent
    assert answer.has_error()
    assert answer.metadata.reply_to_message_id == "in-hand"


def test_signals_are_an_orderly_end_and_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, node.ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_clients_of_one_program_are_started_again_and_end_with_it(make_task, tmp_path):
    task = make_task(
        scenario={"num_clients": 2},
        protocol={"participation": 1.0},
        flower={"quorum": 1.0, "timeout_seconds": 200.0, "timestep_seconds": 3.0},  # not over before one is killed
    )
    configs = [{"client": name, "state-dir": str(tmp_path / "state")} for name in task.flower.clients]
    with ProcessGroup() as processes:
        live = Live(processes, task, tmp_path, secure=True)
        host = processes.start(live.federation.nodes("nodes", configs))
        live.submit()
        live.wait_for_turn("client-0001", 1)
        os.kill(max(pid for pid in host.family() if pid != host.pid), signal.SIGKILL)
        assert live.wait()["finished"]
        assert "starting it again" in host.log.read_text()
        os.kill(host.pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while host.family() and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not host.family()
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


class LosingClient:
    """A SuperLink that does what it is asked, and whose answers get lost now and then."""

    def __init__(self, losses: list[str]) -> None:
        self.losses, self.pending, self.stored = losses, set(), {}
        self.taken_up = False
        """Whether the server has fetched the answer, so that the SuperLink knows of no message to answer."""

    def PushMessages(self, request):  # noqa: N802 - Flower's name
        wanted = [] if self.taken_up else [tree.object_id for tree in walked(request.message_object_trees[0])]
        self.pending |= set(wanted)
        self._lose("message")
        return SimpleNamespace(session_id="1", objects_to_push=[one for one in wanted if one in self.pending])

    def PushObject(self, request):  # noqa: N802 - Flower's name
        stored = request.object_id in self.pending
        if stored:
            self.pending.remove(request.object_id)
            self.stored[request.object_id] = request.object_content
        self._lose("part")
        return SimpleNamespace(stored=stored)

    def _lose(self, kind: str) -> None:
        if kind in self.losses:
            self.losses.remove(kind)
            self.taken_up = True
            raise httpx.ReadError("the answer got lost")


def walked(tree):
    yield tree
    for child in tree.children:
        yield from walked(child)


@pytest.mark.parametrize("losses", [[], ["message"], ["part"], ["part", "part", "message"]], ids=str)
def test_an_answer_arrives_whole_whatever_gets_lost_on_the_way_back(monkeypatch, losses):
    monkeypatch.setattr(fleet_link.time, "sleep", lambda _: None)
    link = FleetLink(Address("127.0.0.1:1", None, None))
    link._client = losing = LosingClient(list(losses))
    asked = Message(RecordDict(), dst_node_id=1, message_type="train.turn")
    asked.metadata.__dict__["_message_id"] = "asked"
    link.send(Message(RecordDict({"config": ConfigRecord({"a": 1})}), reply_to=asked), 0.1)
    assert not losing.losses
    assert not losing.pending
    assert len(losing.stored) == 3


def test_an_answer_that_is_not_taken_does_not_end_the_node(tmp_path, caplog):
    def refuse(*_):
        raise ObjectPushError("part", 1, "session")

    message = Message(RecordDict(), dst_node_id=1, message_type="query.hello")
    link = SimpleNamespace(receive=lambda: message, app_of=lambda _: None, send=refuse)
    Node(link, {}, Identity.of({"client": "ada", "state-dir": str(tmp_path)}, {}), Served("ada")).serve()
    assert "a part of a message was lost" in caplog.text
