"""`make soak`: kill runs and suites at random moments, start them again, and see that nothing is lost, changed or left.

    python -m tests.soak --kills 200

Every run is killed with SIGKILL up to ten times on its way, at moments drawn from a seed, then brought to its end. It
must have the table of a run that nobody disturbed, no file of a dead writer and no process. Most runs are forked, so
that kills fall into work and not into imports; every tenth is the command with two worker processes, and every third of
the others a suite (`fedade bench`).
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fedade.core import storage, trace
from fedade.core.events import Listener
from fedade.experiments.identifying import identified_experiment
from fedade.experiments.settings import experiment_from
from fedade.experiments.suites.grid import SuiteRow
from fedade.flower.processes import Process
from fedade.products import run_folder, suite_folder
from fedade.products.run_folder import CONFIG, run
from fedade.products.suite_folder import run_suite
from fedade.runner import checkpoints

from .bench.tiny import suite
from .runner.crash_points import LEFT_BEHIND

SCENARIO = {"num_clients": 8, "num_timesteps": 12, "samples": 20, "train_size": 350, "reference_size": 50}
KILLS_OF_A_RUN = 10
TENTH, THIRD = 10, 3
SUITE = suite("soaking", (SuiteRow("Fed-ADE", "fed-ade"), SuiteRow("fix-lr-mean", "fix-lr-mean")), timesteps=12)

Start = Callable[[Path], Callable[[float], bool]]
"""Starts a run in a folder; what comes back waits for its end so many seconds, kills it then, and tells if it did."""


Work = Callable[[Path], object]


def forked(work: Work) -> Start:
    """Work in a child of this process."""

    def start(folder: Path) -> Callable[[float], bool]:
        child = os.fork()
        if child == 0:
            try:
                work(folder)
            finally:
                os._exit(0)

        def kill_after(seconds: float) -> bool:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                if os.waitpid(child, os.WNOHANG)[0]:
                    return False
                time.sleep(0.002)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True

        return kill_after

    return start


def commanded(config: Path) -> Start:
    """`fedade run --jobs 2`, whose workers must end with it."""

    def start(folder: Path) -> Callable[[float], bool]:
        words = [sys.executable, "-m", "fedade", "run", str(config), "--out", str(folder), "--jobs", "2", "--json"]
        process = Process("run", words, dict(os.environ), folder.with_suffix(".log"))
        process.start()

        def kill_after(seconds: float) -> bool:
            deadline = time.monotonic() + 20 * seconds  # it imports first
            while process.ended() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            if process.ended() is not None:
                return False
            os.kill(process.pid, signal.SIGKILL)
            deadline = time.monotonic() + 10
            while process.family() and time.monotonic() < deadline:
                process.ended()
                time.sleep(0.05)
            if orphans := process.family():
                process.end(time.monotonic())
                raise AssertionError(f"{len(orphans)} processes outlived a kill")
            return True

        return kill_after

    return start


def killed_run(start: Start, work: Work, folder: Path, longest: float, chance: random.Random) -> int:
    """How often some work was killed on its way to its end."""
    for kills in range(KILLS_OF_A_RUN):
        if not start(folder)(chance.uniform(0.0, longest)):
            return kills
    work(folder)
    return KILLS_OF_A_RUN


def traces(folder: Path) -> dict[str, str]:
    """All tables, as text: what is not a number equals nothing, not even itself."""
    return {str(path.relative_to(folder)): repr(trace.read(path).to_pydict()) for path in folder.rglob("trace.parquet")}


def wrong_with(folder: Path, whole: Path) -> list[str]:
    """What a finished run or suite has other than it should."""
    if not (folder / "report.html").exists():
        return ["it has no report"]
    same = traces(folder) == traces(whole)
    left = [path.name for path in folder.rglob("*") if LEFT_BEHIND.fullmatch(path.name)]
    return ([] if same else ["its table differs"]) + [f"{name} is left" for name in left]


def suite_in(folder: Path) -> None:
    """A suite of two rows and schedules, of which one row needs the other's rates."""
    done = run_suite(SUITE, SUITE.cells((0,)), folder, "cpu", Listener())
    if any(status.state != "done" for _, status in done.cells.cells):
        raise AssertionError("a cell of the suite is not done")


def _without_figures(folder: Path) -> Path:
    storage.write_bytes(folder / "report.html", b"")
    return folder / "report.html"


def main() -> None:
    """Kill until enough was killed, or the time is over; exit code 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after this time, whatever was reached")
    asked = parser.parse_args()
    checkpoints.SAVE_SHARE = float("inf")  # as often as can be, so that kills fall into it
    run_folder.write_report = suite_folder.write_suite_report = _without_figures  # which take longer than all else
    said = {"scenario": SCENARIO, "protocol": {"rounds": 2}, "methods": ["tent", "fed-ade"], "seeds": [7]}
    experiment = identified_experiment(experiment_from(said))
    works: dict[str, Work] = {"run": lambda folder: run(experiment, folder), "suite": suite_in}
    chance, runs, wrong, longest = random.Random(asked.seed), 0, 0, dict[str, float]()
    kills = dict.fromkeys(("run", "suite", "command"), 0)
    over = time.monotonic() + 60 * asked.minutes
    with tempfile.TemporaryDirectory(prefix="fedade-soak-") as place:
        for kind, work in works.items():
            work(Path(place) / kind)  # trains the model, too
            begun = time.monotonic()
            work(Path(place) / f"{kind}-again")
            longest[kind] = (time.monotonic() - begun) / 4  # what was done is kept: a run would else be killed once
        while sum(kills.values()) < asked.kills and time.monotonic() < over:
            runs, folder = runs + 1, Path(place) / f"run-{runs + 1}"
            kind = "command" if runs % TENTH == 0 else "suite" if runs % THIRD == 0 else "run"
            like = "suite" if kind == "suite" else "run"
            start = commanded(Path(place) / "run" / CONFIG) if kind == "command" else forked(works[like])
            try:
                kills[kind] += killed_run(start, works[like], folder, longest[like], chance)
                found = wrong_with(folder, Path(place) / like)
            except Exception as error:  # noqa: BLE001 - the next run may tell more
                found = [f"{type(error).__name__}: {error}"]
            wrong += bool(found)
            told = ", ".join(f"{count} of {kind}" for kind, count in kills.items())
            print(f"{sum(kills.values())} kills ({told}), {runs} times, {wrong} wrong", *found, sep="; ", flush=True)  # noqa: T201
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
