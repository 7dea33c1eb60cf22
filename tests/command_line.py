"""The command line in the tests' own process: the same entry point, without the seconds that imports take."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fedade.cli.main import main


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def command_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path, cache: str, columns: int
) -> Callable[..., Done]:
    """A function that calls `fedade` with some words, in a folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FEDADE_CACHE", cache)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(*words: str) -> Done:
        monkeypatch.setenv("FEDADE_DEBUG", "")  # set, not deleted, so that what --debug sets is undone
        monkeypatch.setattr(sys, "argv", ["fedade", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code or 0, *capfd.readouterr())

    return call
