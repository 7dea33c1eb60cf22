"""Where a result came from: versions, commit, machine."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from fedade.core.version import __version__

_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pyarrow", "pydantic", "flwr")


def provenance(device: str) -> dict[str, Any]:
    """Facts that a reader needs to redo a run."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        **_code(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
    }


@cache
def _code() -> dict[str, Any]:
    """Versions and commit of what this process has imported, whatever becomes of the checkout: one look is enough."""
    return {
        # That of the code that runs: what pip knows of a checkout is that of the day it was installed.
        "versions": {"fedade": __version__, **{name: _version(name) for name in _PACKAGES}},
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(*words: str) -> str | None:
    """What git says of the package's own checkout; nothing when it is installed from a wheel."""
    here = Path(__file__).resolve().parent
    # Whoever works in the checkout meanwhile must not find it locked, least of all by a run that was killed.
    command = ["git", "--no-optional-locks", "-C", str(here), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
