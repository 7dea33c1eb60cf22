import pytest

from fedade.experiments.suites import SUITES

from ..command_line import Done, command_line
from .tiny import FAULTY, LONG, TINY


@pytest.fixture
def bench(cache, tmp_path, monkeypatch, capfd):
    """`fedade bench` in this process, with the suites of `tiny`."""
    run = command_line(monkeypatch, capfd, tmp_path, cache, columns=200)
    for suite in (TINY, LONG, FAULTY):
        monkeypatch.setitem(SUITES, suite.name, suite)

    def call(*words: str, code: int | None = None) -> Done:
        done = run("bench", *words)
        assert code is None or done.returncode == code, done.stderr + done.stdout
        return done

    return call
