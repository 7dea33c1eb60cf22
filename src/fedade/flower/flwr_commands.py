"""Flower's own command line, called as a program: what it prints, or one line that says what is wrong."""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedade.core.errors import FedadeError
from fedade.core.events import Report
from fedade.flower.processes import flower_program
from fedade.flower.settings import read_task

_COLOURS = ("FORCE_COLOR", "TTY_COMPATIBLE")
"""Set where a notebook runs: Flower would then put colours into what should be JSON."""


def submit(app: str, connection: str, run_config: Mapping[str, str], environment: Mapping[str, str]) -> int:
    """Start an app on a SuperLink; returns the run's id."""
    settings = " ".join(f"{key}={json.dumps(value)}" for key, value in run_config.items())
    return int(flwr(environment, "run", app, connection, "--format", "json", "--run-config", settings)["run-id"])


def run_status(connection: str, run: int, environment: Mapping[str, str]) -> tuple[str, str]:
    """Flower's word for how a run fares, such as `finished:completed`, and its details."""
    entry = flwr(environment, "list", connection, "--run-id", str(run), "--format", "json")["runs"][0]
    return str(entry["status"]), str(entry.get("status-details", ""))


def refuse_failed(run: int, status: str, details: str) -> None:
    """Flower itself is content with a run that fails."""
    if status.startswith("finished") and status != "finished:completed":
        raise FedadeError(f"run {run} ended as {status}: {details or 'see the log of the SuperLink'}")


def flwr(environment: Mapping[str, str], *words: str) -> dict[str, Any]:
    plain = {name: value for name, value in environment.items() if name not in _COLOURS}
    done = subprocess.run(  # noqa: S603
        [flower_program("flwr"), *words], env=plain, capture_output=True, text=True, check=False
    )
    start = done.stdout.find("{")
    try:
        answer: dict[str, Any] = json.loads(done.stdout[start:]) if start >= 0 else {}
    except ValueError:
        answer = {}
    if done.returncode or not answer or answer.get("success") is False:
        words_of_flower = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        reason = answer.get("error-message") or words_of_flower[-1]
        raise FedadeError(f"flwr {words[0]} failed: {str(reason).strip()}")
    return answer


POLL_SECONDS = 5.0


def submit_and_watch(app: Path, connection: str, paths: Mapping[str, Path | None], report: Report) -> tuple[int, str]:
    """The run's id and how it ended; a run that fails is an error, here as it should be in Flower."""
    read_task(app)  # mistakes in the configuration are told here, not in a log on another host
    run_config = {name: str(path) for name, path in paths.items() if path is not None}
    run = submit(str(app), connection, run_config, os.environ)
    while True:
        status, details = run_status(connection, run, os.environ)
        report(status, 0, 1)
        refuse_failed(run, status, details)
        if status.startswith("finished"):
            return run, status
        time.sleep(POLL_SECONDS)
