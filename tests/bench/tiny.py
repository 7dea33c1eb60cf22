"""A suite of seconds, and the command line that knows it: `python -m tests.bench.tiny bench tiny ...`.

`TINY_LOG` names a file that gets a line for every cell that is run in the process.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedade.cli.main import main
from fedade.experiments.suites import SUITES
from fedade.experiments.suites.grid import Block, Suite, SuiteRow
from fedade.runner import work
from fedade.runner.clocks import build_clock

SCENARIO = {"num_clients": 6, "num_timesteps": 3, "samples": 10}
ROWS = (
    SuiteRow("source", "source"),
    SuiteRow("FTH", "fth"),
    SuiteRow("Fed-ADE", "fed-ade"),
    SuiteRow("fix-lr-mean", "fix-lr-mean"),
)
DIVERGING = {"rate": {"low": 1e30, "mid": 1e30, "high": 1e30}}


def suite(
    name: str, rows: Sequence[SuiteRow] = ROWS, timesteps: int = 3, schedules: Sequence[str] = ("lin", "squ")
) -> Suite:
    """On the default data, with one seed."""
    changes = {"scenario": {**SCENARIO, "num_timesteps": timesteps}}
    return Suite(name, "for tests", [Block(("digits-label",), rows, schedules, changes)], (0,))


TINY = suite("tiny")
LONG = suite("long", (SuiteRow("Fed-ADE", "fed-ade"),), timesteps=40)
FAULTY = suite(
    "faulty",
    (
        SuiteRow("source", "source"),
        SuiteRow("diverging", "fed-ade", DIVERGING),
        SuiteRow("replaying", "fix-lr-mean", DIVERGING),
        SuiteRow("FTH", "fth"),
    ),
)


def logged(experiment: Any, federations: Any, states: Path) -> Any:
    """`build_clock`, noted down."""
    with Path(os.environ["TINY_LOG"]).open("a") as log:
        log.write(f"{states.parent.name} {experiment.entry.method}\n")
    return build_clock(experiment, federations, states)


if __name__ == "__main__":
    SUITES.update({one.name: one for one in (TINY, LONG, FAULTY)})  # type: ignore[attr-defined]
    if "TINY_LOG" in os.environ:
        work.build_clock = logged
    main()
