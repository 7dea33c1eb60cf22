import sys
from typing import NamedTuple

import pytest

from fedade.cli.main import main

TINY = [
    "--set", "scenario.num_clients=6", "--set", "scenario.num_timesteps=3", "--set", "scenario.samples=10",
]  # fmt: skip


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def fedade(cache, tmp_path, monkeypatch, capfd):
    """The command line in this process: the same entry point, without the seconds that importing PyTorch takes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDADE_CACHE", cache)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(sys, "path", list(sys.path))

    def call(*words: str, check: bool = False) -> Done:
        monkeypatch.setenv("FEDADE_DEBUG", "")  # set, not deleted, so that what --debug sets is undone
        monkeypatch.setattr(sys, "argv", ["fedade", *words])
        capfd.readouterr()
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
        done = Done(code, *capfd.readouterr())
        assert not check or done.returncode == 0, done.stderr
        return done

    return call
