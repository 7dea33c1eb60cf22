import pytest

from ..command_line import Done, command_line

TINY = [
    "--set", "scenario.num_clients=6", "--set", "scenario.num_timesteps=3", "--set", "scenario.samples=10",
]  # fmt: skip


@pytest.fixture
def fedade(cache, tmp_path, monkeypatch, capfd):
    """`fedade` in this process."""
    run = command_line(monkeypatch, capfd, tmp_path, cache, columns=140)

    def call(*words: str, check: bool = False) -> Done:
        done = run(*words)
        assert not check or done.returncode == 0, done.stderr
        return done

    return call
