"""What a service manager starts: a SuperLink behind its gate, and a SuperNode."""

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import uvicorn

from fedade.core.errors import FedadeError
from fedade.flower.certificates import NODES, SERVER, SERVER_KEY, TRUSTED, NodeFiles
from fedade.flower.federation import FlowerFederation, environment, free_ports, supernode_words, wait_for_port
from fedade.flower.gate import Gate
from fedade.flower.processes import Process, ProcessGroup, flower_program, interruptible

log = logging.getLogger("fedade.gate")

LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class LinkService:
    """A SuperLink on loopback, the keys that it knows, and the gate that nodes come through."""

    certificates: Path
    """Holds `ca.crt`, the server's certificate and key, `nodes/NAME/node.key.pub` and `apps/`."""
    home: Path
    host: str
    port: int
    local_port: int

    def run(self) -> None:
        """Until a signal, or the end of the SuperLink, which is an error: a service manager starts both again."""
        for name in (SERVER, SERVER_KEY):
            if not (self.certificates / name).is_file():
                raise FedadeError(f"{self.certificates / name} is missing; make it with `fedade flower certs`")
        federation = FlowerFederation(self.home, self.certificates, self.local_port)
        federation.write_connection()
        with interruptible(), ProcessGroup() as processes:
            link = processes.start(federation.superlink())
            wait_for_port(link, self.local_port)
            federation.register()
            self._serve(federation, link)
            if link.ended() is not None:
                raise FedadeError(f"the SuperLink ended ({link.ended()}): {link.last_words()}; log: {link.log}")

    def _serve(self, federation: FlowerFederation, link: Process) -> None:
        gate = Gate(federation.address, self.certificates)
        config = uvicorn.Config(
            gate.app(),
            host=self.host,
            port=self.port,
            log_level="warning",
            ssl_certfile=self.certificates / SERVER,
            ssl_keyfile=self.certificates / SERVER_KEY,
        )
        server, over = uvicorn.Server(config), threading.Event()

        def look() -> None:
            """Notice a SuperLink that ended, and keys that came or went."""
            known = _key_files(self.certificates)
            while not over.wait(LOOK_SECONDS):
                if link.ended() is not None:
                    server.should_exit = True
                    return
                if (now := _key_files(self.certificates)) != known:
                    known = now
                    try:
                        federation.register()
                    except FedadeError as error:
                        log.error("%s", error)

        watching = threading.Thread(target=look, daemon=True)
        watching.start()
        try:
            server.run()
        finally:
            over.set()
            watching.join()


def _key_files(certificates: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (certificates / NODES).glob("*/node.key.pub")}


def run_supernode(
    certificates: Path, name: str, superlink: str, state_dir: Path, node_config: Mapping[str, str], port: int | None
) -> NoReturn:
    """Become the SuperNode of a client, which runs apps that the fleet's operator has signed, and no others."""
    if not (certificates / TRUSTED).is_file():
        raise FedadeError(f"{certificates / TRUSTED} is missing; copy it from where `fedade flower certs` wrote it")
    if not NodeFiles.of(certificates, name).key.is_file():
        raise FedadeError(f"{NodeFiles.of(certificates, name).key} is missing; copy the key of client {name}")
    said = {"client": name, "state-dir": str(state_dir), **node_config}
    words = supernode_words(certificates, name, superlink, port or free_ports(1)[0], said)
    words += ["--trusted-entities", str(certificates / TRUSTED)]
    program = flower_program("flower-supernode")
    os.execve(program, [program, *words], environment(state_dir / ".flwr" / name))  # noqa: S606
