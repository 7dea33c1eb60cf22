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


def other_place(path: Path) -> str:
    """What to do where nothing can be written."""
    if is_cached(path):
        return "set FEDADE_CACHE to a folder that can be written"
    return "choose another place (on the command line: --out)"


def is_cached(path: Path) -> bool:
    """Whether a path lies in the cache."""
    return path.resolve().is_relative_to(cache_dir().resolve())


def require_writable(folder: Path) -> None:
    """Refuse a folder that could not be made or written to, before anything is computed for it."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise FedadeError(f"cannot write to {folder}: {there} is a file; {other_place(folder)}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise FedadeError(f"cannot write to {folder}: {there} is read-only; {other_place(folder)}")


def require_folder(folder: Path) -> Path:
    """The folder, if it is that of a run or suite."""
    if not any((folder / mark).is_file() for mark in (CONFIG, SUITE)):
        raise FedadeError(
            f"{folder} holds no run and no suite (neither {CONFIG} nor {SUITE}); name one that fedade run or bench made"
        )
    return folder
