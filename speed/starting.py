"""How soon each command says something: seconds to its first output and to its end, in a terminal.

`python speed/starting.py --out docs/results/starting.csv`. The best of several turns counts; what a command takes that
has something to compute is left out: it is stopped at its first output.
"""

import argparse
import csv
import os
import pty
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

COMMANDS = {
    "--version": 0,
    "--help": 0,
    **dict.fromkeys((f"{name} --help" for name in ("run", "bench", "tune", "report", "results", "flower", "data")), 0),
    "run --sede 1": 2,
    "run nonsense": 2,
    "run --set scenario.alhpa=1": 2,
    "run --set scenario.dataset=nonsense": 2,
    "run --set scenario.model=nonsense": 2,
    "run --set fed-ade.nonsense=1": 2,
    "bench nonsense": 2,
    "tune nonsense": 2,
    "check-method nonsense": 2,
    "report nonsense": 2,
    "results add nonsense": 2,
    "flower up nonsense": 2,
    **dict.fromkeys(
        (
            f"list {kind}"
            for kind in ("methods", "datasets", "models", "schedules", "measures", "presets", "suites", "settings")
        ),
        0,
    ),
    "data list": 0,
    "flower certs keys": 0,
    **dict.fromkeys(("run", "bench smoke", "tune", "check-method source"), None),
}
"""Words, and the exit code; None for those that go on to compute."""


def started(words: Sequence[str], code: int | None, folder: str) -> tuple[float, float, float]:
    """Seconds to the first output, to the end, and of the processor."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun, first = time.monotonic(), 0.0
    child, terminal = pty.fork()
    if not child:
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, "-m", "fedade", *words])  # noqa: S606
    try:
        while os.read(terminal, 4096):
            first = first or time.monotonic() - begun
            if code is None:
                os.kill(child, signal.SIGKILL)
    except OSError:  # the terminal's other end was closed
        pass
    _, status = os.waitpid(child, 0)
    end = time.monotonic() - begun
    os.close(terminal)
    assert code is None or os.waitstatus_to_exitcode(status) == code, (words, status)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return first, end, after.ru_utime + after.ru_stime - spent.ru_utime - spent.ru_stime


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--out", type=Path)
    asked.add_argument("--version", default="after", help="what the rows are called; those of others are kept")
    asked.add_argument("--turns", type=int, default=3)
    asked.add_argument("--matching", default="", help="only commands that contain this")
    chosen = asked.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for words, code in COMMANDS.items():
            if chosen.matching not in words:
                continue
            turns = [started(words.split(), code, folder) for _ in range(chosen.turns)]
            first, end, spent = (min(column) for column in zip(*turns, strict=True))
            last = {"end": "", "processor": ""} if code is None else {"end": f"{end:.2f}", "processor": f"{spent:.2f}"}
            rows.append(
                {"version": chosen.version, "command": f"fedade {words}", "first output": f"{first:.2f}", **last}
            )
            print(*rows[-1].values(), sep="  ", flush=True)
    if chosen.out:
        if chosen.out.exists():
            with chosen.out.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["version"] != chosen.version] + rows
        with chosen.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
