"""What an exchange of a fleet takes, and how much of it is Flower's: `python speed/exchanges.py --out FILE`.

Four clients with TLS and node authentication on this machine. After every turn of the method, the same server sends the
same clients messages of the same size over the same link, to which they answer at once with what they got: an empty
exchange. It has all that Flower and the questions for messages cost and nothing of ours: no turn, no file, no check, no
average. Both meet the same other work on the machine. Told are seconds by the clock, and of processor time.
"""

import argparse
import csv
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedade.cli.main import main as fedade
from fedade.core.paths import cache_dir
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import merged
from fedade.flower import CONNECTION, exchange, node, server
from fedade.flower.bundle import write_app
from fedade.flower.certificates import LOOPBACK, make_certificates
from fedade.flower.client_app import client_app
from fedade.flower.federation import FlowerFederation, free_ports, trial_task, wait_for_port
from fedade.flower.flwr_commands import submit
from fedade.flower.overview import read_status
from fedade.flower.processes import ProcessGroup
from fedade.flower.server import Server
from fedade.flower.wire import instruction_record, named_leaves
from fedade.scenarios.building import build_deployment

ECHO = "query.echo"
TIMES = "times.csv"
COLUMNS = ("kind", "turn", "asked", "seconds", "cpu_seconds", "bytes")
LONGEST_SECONDS = 1200.0


def answering_echoes(folder: Path, *rest: Any, **options: Any) -> ClientApp:
    """The client's app, which also answers empty messages."""
    app = client_app(folder, *rest, **options)

    @app.query("echo")
    def echo(message: Message, _context: Context) -> Message:
        return Message(message.content, reply_to=message)

    return app


def worked(folder: Path) -> float:
    """Seconds of processor time of all programs of a fleet so far."""
    found = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.fsencode(folder) in (process / "environ").read_bytes():
                threads = [path.read_text() for path in process.glob("task/*/schedstat")]
                found += sum(int(thread.split()[0]) for thread in threads) / 1e9
        except OSError:  # of another user, or it ended meanwhile
            continue
    return found


def measure_server(folder: Path) -> None:
    """Follow every turn of this process's server by an empty exchange, and write down what both took."""
    real = Server._turn

    def timed(kind: str, self: Server, work: Callable[[], None]) -> None:
        before, begun, bytes_before = worked(folder), time.monotonic(), self.exchange.traffic.to_clients
        work()
        line = (
            kind,
            self.progress.turn,
            len(self.roster),
            round(time.monotonic() - begun, 3),
            round(worked(folder) - before, 3),
            (self.exchange.traffic.to_clients - bytes_before) // len(self.roster),
        )
        with (folder / TIMES).open("a") as file:
            csv.writer(file, lineterminator="\n").writerow(line)

    def empty(self: Server) -> None:
        shared, heard = named_leaves(self.progress.shared), list[str]()
        members = {member.name: member for member in self.roster}

        def judge(member: Any, _content: Any) -> bool:
            heard.append(member.name)
            return True

        exchange.TURN = ECHO  # type: ignore[misc]
        try:
            self.exchange.attempt(
                members,
                lambda member: instruction_record(self._instruction(member, shared, False, 0, 0)),
                judge,
                lambda: len(heard) == len(members),
            )
        finally:
            exchange.TURN = "train.turn"  # type: ignore[misc]

    def turn_and_echo(self: Server, timestep: int, number: int) -> None:
        timed("turn", self, lambda: real(self, timestep, number))
        timed("empty", self, lambda: empty(self))

    server.Server._turn = turn_and_echo  # type: ignore[method-assign]


def run(folder: Path, preset: str, clients: int, timesteps: int, rounds: int, *, forgets: bool) -> list[list[str]]:
    """The lines of a fleet that was run to its end."""
    said = {"scenario": {"num_timesteps": timesteps}, "protocol": {"rounds": rounds, "participation": 1.0}}
    task = trial_task(merged(merged(settings_from(preset), {"methods": ["fed-ade"], "seeds": [0]}), said), clients)
    build_deployment(task.experiment.scenario, "cpu", cache_dir(), lambda _done, _of: None)
    write_app(folder / "app", task)
    here = Path(__file__).resolve()
    with (folder / "app" / "fedade_app" / "server.py").open("a") as module:
        module.write(f"\nimport sys\nsys.path.insert(0, {str(here.parent)!r})\nimport exchanges\n")
        module.write(f"exchanges.measure_server(Path({str(folder)!r}))\n")
    make_certificates(folder / "certificates", LOOPBACK, task.flower.clients, days=1)
    federation = FlowerFederation(folder, folder / "certificates", *free_ports(1))
    federation.write_connection()
    with ProcessGroup() as processes:
        link = processes.start(federation.superlink(forgets=forgets))
        configs = [{"client": name, "state-dir": str(folder / "state")} for name in task.flower.clients]
        nodes = federation.nodes("nodes", configs)
        nodes.command = [sys.executable, str(here), *nodes.command[3:]]  # in place of `python -m fedade`
        processes.start(nodes)
        wait_for_port(link, federation.port)
        federation.register()
        submit(str(folder / "app"), CONNECTION, {"out": str(folder / "out")}, federation.environment)
        over = time.monotonic() + LONGEST_SECONDS
        while not (status := read_status(folder / "out")).get("finished"):
            if "error" in status or link.ended() is not None or time.monotonic() > over:
                raise SystemExit(f"the fleet did not end: {status}; {link.last_words()}")
            time.sleep(0.5)
    with (folder / TIMES).open() as file:
        return list(csv.reader(file))


def told(lines: list[list[str]], load: float, **about: object) -> dict[str, object]:
    """One line of the table; the first turn, which loads data and code, is left out."""
    found: dict[str, object] = {"measured": datetime.now(UTC).date().isoformat(), **about, "load_average": round(load)}
    later = [dict(zip(COLUMNS, line, strict=True)) for line in lines if int(line[1]) > 0]
    for kind in ("turn", "empty"):
        ours = [line for line in later if line["kind"] == kind]
        found["exchanges"] = len(ours)
        for column in ("seconds", "cpu_seconds"):
            found[f"{kind}_{column}"] = round(statistics.median(float(line[column]) for line in ours), 3)
        found[f"{kind}_bytes_to_a_client"] = int(statistics.median(int(line["bytes"]) for line in ours))
    pairs = [(float(line["seconds"]), line["kind"]) for line in later]
    beside = [turn[0] - echo[0] for turn, echo in zip(pairs[::2], pairs[1::2], strict=True)]
    found["beside_flower_seconds"] = round(statistics.median(beside), 3)
    return found


def main() -> None:
    """Measure with and without a database, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="digits-label")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--timesteps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="a CSV file that gets the lines")
    asked = parser.parse_args()
    lines = []
    for forgets in (True, False):
        with tempfile.TemporaryDirectory(prefix="e") as name:
            found = run(Path(name), asked.preset, asked.clients, asked.timesteps, asked.rounds, forgets=forgets)
        about = {"preset": asked.preset, "clients": asked.clients, "superlink": "memory" if forgets else "database"}
        lines.append(told(found, os.getloadavg()[0], **about))
    with asked.out.open("w") if asked.out else sys.stdout as file:
        writer = csv.DictWriter(file, fieldnames=lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["flower"]:
        node.client_app = answering_echoes
        sys.exit(fedade())
    main()
