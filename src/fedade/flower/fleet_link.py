"""A node's end of the network: Flower's fleet interface, spoken by the process that also does the work. Flower's own
SuperNode starts a program for every message and looks for the next one every three seconds."""

import hashlib
import io
import itertools
import logging
import threading
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.config import get_fused_config_from_fab
from flwr.common.serde import fab_from_proto, message_from_proto, message_to_proto, run_from_proto
from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, node_pb2, run_pb2
from flwr.supercore.inflatable import inflatable_protobuf_utils, inflatable_utils
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError, push_objects
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedade.core.errors import FedadeError
from fedade.flower.admission import is_signed
from fedade.flower.certificates import key_pair
from fedade.flower.delivery import PATIENCE, once
from fedade.flower.settings import CONFIG

log = logging.getLogger("flwr.fedade")
HEARTBEAT_SECONDS = 10.0
"""The shortest that Flower allows: after a kill the SuperLink takes a node for alive for twice this time."""
REFUSED_SECONDS = 30.0
"""How long a node that is refused tries again: longer than the SuperLink takes its killed predecessor for alive."""
RETRY_SECONDS = 2.0
MOST_CONFIG_BYTES = 2**20
NODE_UNAVAILABLE = 3
"""Flower's code for a node that is away."""
_UNAVAILABLE = (502, 503, 504)


class RunEndedError(Exception):
    """What is asked belongs to a run that does not run any longer."""


LOST = (ObjectPullError, ObjectPushError)
"""A message or an answer of which parts are gone; the server notices, and asks again."""


@dataclass(frozen=True)
class Address:
    """Where the SuperLink is, and what node and SuperLink know one another by."""

    superlink: str
    root_certificates: Path | None
    """None: without TLS."""
    key: Path | None
    """The node's private key; None: without node authentication, under a new name every time."""
    trusted: Path | None = None
    """Public keys, by one of which an app must be signed; None: any app, as in a trial."""


class RunningApp(NamedTuple):
    """What a node takes of the app of a run: its configuration, and nothing that could be executed."""

    digest: str
    config: bytes
    run_config: dict[str, Any]


def envelope(message: Message) -> bytes:
    """A message without its content: enough to answer it."""
    serialised: bytes = message_to_proto(remove_content_from_message(message)).SerializeToString()
    return serialised


class FleetLink:
    """A connection that activates its node, shows that it is alive, and comes back after a SuperLink was away."""

    def __init__(self, address: Address) -> None:
        self._keys = generate_key_pairs() if address.key is None else key_pair(address.key)
        self._self_registered, self._trusted = address.key is None, address.trusted
        version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
        root = None if address.root_certificates is None else str(address.root_certificates)
        self._client = FleetHttpClient.from_server_address(
            address.superlink, root is None, root, interceptors=[version, NodeAuthHttpInterceptor(*self._keys)]
        )
        self.node = node_pb2.Node()
        self._leaving, self._forgotten = threading.Event(), threading.Event()
        self._heartbeats = threading.Thread(target=self._show_alive, daemon=True)

    def __enter__(self) -> "FleetLink":
        self._activate()
        self._heartbeats.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        with suppress(httpx.HTTPError):
            self._client.DeactivateNode(fleet_pb2.DeactivateNodeRequest(node_id=self.node.node_id))
            if self._self_registered:
                self._client.UnregisterNode(fleet_pb2.UnregisterNodeFleetRequest(node_id=self.node.node_id))
        self._client.close()

    def receive(self) -> Message | None:
        if self._forgotten.is_set():
            self._activate()
            self._forgotten.clear()
        response = self._call(self._client.PullMessages, fleet_pb2.PullMessagesRequest(node=self.node))
        if not response.messages_list:
            return None
        run, whole = response.messages_list[0].metadata.run_id, response.message_object_trees[0]
        ask, confirm = (
            partial(self._call, call) for call in (self._client.PullObject, self._client.ConfirmMessageReceived)
        )
        message = inflatable_utils.pull_and_inflate_object_from_tree(
            whole,
            inflatable_protobuf_utils.make_pull_object_fn_protobuf(ask, self.node, run),
            inflatable_protobuf_utils.make_confirm_message_received_fn_protobuf(confirm, self.node, run),
            return_type=Message,
            **PATIENCE,
        )
        message.metadata.__dict__["_message_id"] = whole.object_id  # which it does not hold itself
        self._in_run(run)
        return message

    def send(self, answer: Message, seconds: float) -> None:
        answer.metadata.__dict__["_message_id"] = answer.object_id
        with no_object_id_recompute():
            request = fleet_pb2.PushMessagesRequest(
                node=self.node,
                messages_list=[message_to_proto(remove_content_from_message(answer))],
                message_object_trees=[get_object_tree(answer)],
                clientapp_runtime_list=[seconds],
            )
            response, times = self._tried(self._client.PushMessages, request)
            parts, run, session = get_all_nested_objects(answer), answer.metadata.run_id, response.session_id
            wanted, repeated = set(response.objects_to_push), times > 1
            if repeated:
                # The server may have taken it up after the first time: then no part is asked for, but all are waited
                # for. Without the name of a session the SuperLink finds that which waits for a part.
                wanted, session = set(parts), ""

            def push(name: str, content: bytes) -> tuple[bool, int]:
                part = message_pb2.PushObjectRequest(
                    node=self.node, run_id=run, object_id=name, object_content=content, session_id=session
                )
                answered, sent = self._tried(self._client.PushObject, part)
                return bool(answered.stored), sent

            push_objects(parts, once(push, run, session, repeated), object_ids_to_push=wanted)

    def give_up(self, in_hand: bytes) -> None:
        """Tell the server that a message was lost with the process that had it, so that it need not wait."""
        message = message_from_proto(message_pb2.Message.FromString(in_hand))
        self._in_run(message.metadata.run_id)
        with suppress(RunEndedError, httpx.HTTPStatusError, *LOST):  # nobody waits for it any longer
            self.send(Message(Error(code=NODE_UNAVAILABLE, reason="the node was restarted"), reply_to=message), 0.0)

    def _in_run(self, run: int) -> None:
        """Answers ask the process in which run they are written."""
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 0, run, self.node.node_id

    def app_of(self, run: int) -> RunningApp:
        """The configuration of a run's app. Of its code nothing is read: this program is the client."""
        named = run_pb2.GetRunRequest(node=self.node, run_id=run)
        described = run_from_proto(self._call(self._client.GetRun, named).run)
        asked = fab_pb2.GetFabRequest(node=self.node, hash_str=described.fab_hash, run_id=run)
        app = fab_from_proto(self._call(self._client.GetFab, asked).fab)
        content, digest = app.content, hashlib.sha256(app.content).hexdigest()
        if digest != described.fab_hash:
            raise FedadeError(f"run {run}: the SuperLink sent another app than it named; is it the right one?")
        if self._trusted is not None and not is_signed(content, app.verifications, self._trusted):
            raise FedadeError(f"run {run}: its app is signed by no key of {self._trusted}; use `fedade flower sign`")
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as bundle, bundle.open(CONFIG) as file:
                config = file.read(MOST_CONFIG_BYTES + 1)
        except (KeyError, zipfile.BadZipFile) as error:
            raise FedadeError(f"run {run}: its app has no {CONFIG}; make it with `fedade flower init`") from error
        if len(config) > MOST_CONFIG_BYTES:
            raise FedadeError(f"run {run}: {CONFIG} of its app has more than {MOST_CONFIG_BYTES} bytes")
        return RunningApp(digest, config, dict(get_fused_config_from_fab(content, described)))

    def _activate(self) -> None:
        """Be known as alive; a node that was just killed is taken for alive, and refused, for a while."""
        public = public_key_to_bytes(self._keys[1])
        deadline = time.monotonic() + REFUSED_SECONDS
        while True:
            try:
                if self._self_registered and not self.node.node_id:
                    self._call(self._client.RegisterNode, fleet_pb2.RegisterNodeFleetRequest(public_key=public))
                asked = fleet_pb2.ActivateNodeRequest(public_key=public, heartbeat_interval=HEARTBEAT_SECONDS)
                self.node = node_pb2.Node(node_id=self._call(self._client.ActivateNode, asked).node_id)
            except httpx.HTTPStatusError as error:
                if time.monotonic() > deadline:
                    raise FedadeError(
                        f"the SuperLink refuses this node ({error.response.text[:200]}); register its public key with "
                        "`flwr supernode register`, and see that no second node has it"
                    ) from error
                log.warning("the SuperLink refuses this node; trying again")
                time.sleep(RETRY_SECONDS)
            else:
                log.info("connected as node %d", self.node.node_id)
                return

    def _show_alive(self) -> None:
        while not self._leaving.wait(HEARTBEAT_SECONDS * 0.6):
            with suppress(httpx.HTTPError):  # the SuperLink is away; whoever asks next will see
                asked = heartbeat_pb2.SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=HEARTBEAT_SECONDS)
                if not self._client.SendNodeHeartbeat(asked).success:
                    self._forgotten.set()

    def _call(self, function: Callable[[Any], Any], request: Any) -> Any:
        """Ask the SuperLink, for as long as it cannot be reached."""
        return self._tried(function, request)[0]

    def _tried(self, function: Callable[[Any], Any], request: Any) -> tuple[Any, int]:
        """The SuperLink's answer, and how often it was asked: it may have heard more than once."""
        waited = 0.0
        for times in itertools.count(1):
            try:
                return function(request), times
            except httpx.TransportError as error:
                if "certificate" in str(error).lower():
                    raise FedadeError(f"the SuperLink's certificate is not trusted ({error})") from error
                reason = str(error)
            except httpx.HTTPStatusError as error:
                if error.response.status_code == httpx.codes.FORBIDDEN:
                    raise RunEndedError from error
                if error.response.status_code not in _UNAVAILABLE:
                    raise
                reason = str(error.response.status_code)
            if not waited:
                log.warning("the SuperLink does not answer (%s); trying again", reason)
            waited = min(2 * waited or 0.1, 5.0)
            time.sleep(waited)
        raise AssertionError("it is asked without an end")
