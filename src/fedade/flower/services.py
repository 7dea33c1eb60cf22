"""What a service manager starts: a SuperLink behind its gate, and the node of a client."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from fedade.core.errors import FedadeError
from fedade.flower.certificates import CA, NODES, SERVER, SERVER_KEY, TRUSTED, NodeFiles
from fedade.flower.federation import FlowerFederation, wait_for_port
from fedade.flower.fleet_link import Address
from fedade.flower.gate import Gate
from fedade.flower.hosting import run_nodes
from fedade.flower.processes import Process, ProcessGroup, interruptible

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


def run_client(certificates: Path, superlink: str, node_config: Mapping[str, str]) -> None:
    """Be the node of a client, which takes part in runs of apps that the fleet's operator has signed and no others."""
    files = NodeFiles.of(certificates, node_config["client"])
    for path in (certificates / TRUSTED, files.key):
        if not path.is_file():
            raise FedadeError(f"{path} is missing; copy it from where `fedade flower certs` wrote it")
    run_nodes([(Address(superlink, certificates / CA, files.key, certificates / TRUSTED), node_config)])
