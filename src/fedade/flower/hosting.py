"""Several clients on one host: a process each, forked from one that has loaded what all of them need."""

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

from flwr.common.config import parse_config_args

from fedade.core.errors import FedadeError
from fedade.flower.fleet_link import Address
from fedade.flower.node import ended_by_signals, run_node

log = logging.getLogger("flwr.fedade")

GRACE_SECONDS = 5.0
RESTART_SECONDS = 1.0

Client = tuple[Address, Mapping[str, Any]]


def clients_of(
    superlink: str, root_certificates: Path | None, keys: Sequence[Path], node_configs: Sequence[str]
) -> list[Client]:
    """Clients by what a command line says of them, each with its own key if there are keys."""
    own: list[Path | None] = [*keys] or [None] * len(node_configs)
    return [
        (Address(superlink, root_certificates, key), parse_config_args([words]))
        for key, words in zip(own, node_configs, strict=True)
    ]


def run_nodes(clients: Sequence[Client]) -> None:
    """Be one client, or watch over several: one that is killed is started again, one that gives up ends all."""
    importlib.import_module("torch._dynamo")  # PyTorch does so at the first gradient, while the server waits
    if len(clients) == 1:
        run_node(*clients[0])
        return
    running: dict[int, Client] = {}
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


def _forked(client: Client) -> int:
    """The process number of a client's node."""
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
    """Ask processes to end, and make sure that they did."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + GRACE_SECONDS
        while pids and time.monotonic() < deadline:
            pids = [pid for pid in pids if os.waitpid(pid, os.WNOHANG) == (0, 0)]
            time.sleep(0.05)
