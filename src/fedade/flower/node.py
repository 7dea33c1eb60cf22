"""A client as one resident program, with model and state loaded from message to message; or several on one host, each
a process, forked from one that has loaded what all of them need."""

import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import filelock
from flwr.app import Context, Error, Message, RecordDict
from flwr.common.config import parse_config_args

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.flower.client_app import Identity, client_app
from fedade.flower.endpoint import SOCKET, served_at
from fedade.flower.fleet_link import LOST, Address, FleetLink, RunEndedError, envelope
from fedade.flower.processes import ended_by_signals
from fedade.flower.serving import Served, remember_node, restore
from fedade.flower.settings import CONFIG
from fedade.flower.snapshots import Snapshot
from fedade.flower.turns import Client

log = logging.getLogger("flwr.fedade")
SHORTEST_WAIT, LONGEST_WAIT = 0.25, 3.0
WAIT_SHARE = 0.05
"""Of the time since the last message that a node waits before it asks for the next: soon in a run, rarely in a night.
Each question costs the SuperLink about 12 ms."""
APP_FAILED = 2
"""Flower's code for a client that cannot answer at all."""


def run_node(address: Address, node_config: Mapping[str, Any], parent: int | None = None) -> None:
    """Answer messages until the process is told to end, or its parent is gone. A client has one node at a time."""
    identity = Identity.of(node_config, {})
    _name_in_log(identity.name)
    identity.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    served = Served(identity.name)
    try:
        restore(served, identity.state_dir)
    except FedadeError as error:  # to be mended by the server's next message, or told with it
        log.warning("nothing is served yet: %s", error)
    try:
        with (
            filelock.FileLock(identity.state_dir / ".node.lock", timeout=0),
            ended_by_signals(),
            served_at(identity.state_dir / SOCKET, served),
            FleetLink(address) as link,
        ):
            node = Node(link, dict(node_config), identity, served)
            node.begin()
            while parent is None or os.getppid() == parent:
                time.sleep(node.serve())
    except filelock.Timeout as error:
        raise FedadeError(f"a node of client {identity.name} runs already on {identity.state_dir}; end it") from error


class Node:
    """Answers the messages of a link, one at a time."""

    def __init__(self, link: FleetLink, node_config: dict[str, Any], identity: Identity, served: Served) -> None:
        self.link, self.node_config, self.identity, self.served = link, node_config, identity, served
        self._app: tuple[int, Path, dict[str, Any]] | None = None
        """The run of the last message, where the configuration of its app is, and the run's own."""
        self._last = time.monotonic()
        """When the last message came."""

    @property
    def _in_hand(self) -> Path:
        """The message that is being answered; found at the start, it tells that the process before was killed."""
        return self.identity.state_dir / ".message"

    def begin(self) -> None:
        """Give up what a process before this one had in hand."""
        if self._in_hand.exists():
            self.link.give_up(self._in_hand.read_bytes())
            self._in_hand.unlink()

    def serve(self) -> float:
        """Answer a message, if there is one; returns the seconds to wait for the next."""
        try:
            message = self.link.receive()
            if message is not None:
                begun = time.monotonic()
                with suppress(FedadeError):  # a full disk fails the turn, which tells; it must not end the node
                    storage.write_bytes(self._in_hand, envelope(message), private=True)
                answer = self._answer(message)
                self._last = time.monotonic()
                self.link.send(answer, self._last - begun)
                self._in_hand.unlink(missing_ok=True)
                log.info("%s answered in %.3f s", message.metadata.message_type, self._last - begun)
                return 0.0
        except RunEndedError:
            log.info("the run ended meanwhile; its message is dropped")
        except LOST as error:
            log.warning("a part of a message was lost: %s", error)
        return min(LONGEST_WAIT, max(SHORTEST_WAIT, WAIT_SHARE * (time.monotonic() - self._last)))

    def _answer(self, message: Message) -> Message:
        run = message.metadata.run_id
        try:
            folder, run_config = self._app_of(run)

            def published(client: Client, snapshot: Snapshot) -> None:
                remember_node(client, self.node_config, run_config)
                self.served.publish(client, snapshot)

            app = client_app(folder, published, in_order=True)
            return app(message, Context(run, self.link.node.node_id, self.node_config, RecordDict(), run_config))
        except RunEndedError:
            raise
        except Exception as error:
            # The reason stays here, as that of a failed turn does.
            log.error("no answer: %s", error, exc_info=not isinstance(error, FedadeError))
            return Message(Error(code=APP_FAILED, reason="the client failed; its own log says why"), reply_to=message)

    def _app_of(self, run: int) -> tuple[Path, dict[str, Any]]:
        if self._app is None or self._app[0] != run:
            app = self.link.app_of(run)
            folder = self.identity.state_dir / "apps" / app.digest[:16]
            storage.write_bytes(folder / CONFIG, app.config, private=True)
            self._app = run, folder, app.run_config
        return self._app[1:]


def _name_in_log(name: str) -> None:
    """Begin every line of the log with the client's name: several may write to one."""

    def named(record: logging.LogRecord) -> bool:
        record.msg = f"{name}: {record.msg}"
        return True

    log.addFilter(named)


GRACE_SECONDS = 5.0
RESTART_SECONDS = 1.0
NodeStart = tuple[Address, Mapping[str, Any]]
"""Where a client's node finds its SuperLink, and its configuration."""


def clients_of(
    superlink: str, root_certificates: Path | None, keys: Sequence[Path], node_configs: Sequence[str]
) -> list[NodeStart]:
    """Clients by what a command line says of them, each with its own key if there are keys."""
    own: list[Path | None] = [*keys] or [None] * len(node_configs)
    return [
        (Address(superlink, root_certificates, key), parse_config_args([words]))
        for key, words in zip(own, node_configs, strict=True)
    ]


def run_nodes(clients: Sequence[NodeStart]) -> None:
    """Be one client, or watch over several: one that is killed is started again, one that gives up ends all."""
    importlib.import_module("torch._dynamo")  # PyTorch does so at the first gradient, while the server waits
    if len(clients) == 1:
        run_node(*clients[0])
        return
    running: dict[int, NodeStart] = {}
    with ended_by_signals():
        try:
            for client in clients:
                running[_forked(client)] = client
            while True:
                pid, status = os.wait()
                client = running.pop(pid)
                if (code := os.waitstatus_to_exitcode(status)) >= 0:
                    raise FedadeError(f"the node of {client[1].get('client')} ended with code {code}; see its log")
                log.warning("the node of %s was killed; starting it again", client[1].get("client"))
                time.sleep(RESTART_SECONDS)
                running[_forked(client)] = client
        finally:
            _end(list(running))


def _forked(client: NodeStart) -> int:
    parent = os.getpid()
    if pid := os.fork():
        return pid
    code = 1
    try:
        run_node(*client, parent)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except FedadeError as error:
        log.error("%s", error)
    except BaseException:
        log.exception("the node failed")
    finally:
        logging.shutdown()
        sys.stderr.flush()
        os._exit(code)  # what the parent would do at its end is the parent's


def _end(pids: list[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + GRACE_SECONDS
        while pids and time.monotonic() < deadline:
            pids = [pid for pid in pids if os.waitpid(pid, os.WNOHANG) == (0, 0)]
            time.sleep(0.05)
