"""Submitting an app to a SuperLink that runs already, and waiting for its end."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from fedade.core.events import Report
from fedade.flower.flwr_commands import refuse_failed, run_status, submit
from fedade.flower.settings import read_task

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
