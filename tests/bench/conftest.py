import sys
from typing import NamedTuple

import pytest

from fedade.cli.main import main
from fedade.experiments.suites import SUITES

from .tiny import FAULTY, LONG, TINY


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def bench(cache, tmp_path, monkeypatch, capfd):
    """`fedade bench` in this process, with the suites of `tiny`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDADE_CACHE", cache)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for suite in (TINY, LONG, FAULTY):
        monkeypatch.setitem(SUITES, suite.name, suite)

    def call(*words: str, code: int | None = None) -> Done:
        monkeypatch.setenv("FEDADE_DEBUG", "")  # set, not deleted, so that what --debug sets is undone
        monkeypatch.setattr(sys, "argv", ["fedade", "bench", *words])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        done = Done(ended.value.code or 0, *capfd.readouterr())
        assert code is None or done.returncode == code, done.stderr + done.stdout
        return done

    return call
