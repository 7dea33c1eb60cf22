"""Where things are kept between runs."""

import os
from pathlib import Path

import platformdirs

from fedade.core.errors import FedadeError

CONFIG, SUITE = "config.yaml", "suite.json"
"""Files that make a folder that of a run, or of a suite."""


def cache_dir() -> Path:
    """Trained models and generated images; `FEDADE_CACHE` names another place."""
    return Path(os.environ.get("FEDADE_CACHE") or platformdirs.user_cache_dir("fedade"))


def require_folder(folder: Path) -> Path:
    """The folder, if it is that of a run or suite."""
    if not any((folder / mark).is_file() for mark in (CONFIG, SUITE)):
        raise FedadeError(
            f"{folder} holds no run and no suite (neither {CONFIG} nor {SUITE}); name one that fedade run or bench made"
        )
    return folder
