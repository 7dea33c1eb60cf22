"""Long runs do not grow; `make soak` has them ten times as long."""

import pytest

from . import soak_length


@pytest.mark.slow
@pytest.mark.parametrize("long_run", [soak_length.simulator, soak_length.fleet])
def test_a_long_run_does_not_grow(cache, tmp_path, monkeypatch, long_run):
    monkeypatch.setattr(soak_length.exchange, "POLL_SECONDS", 0.0)
    readings = long_run(tmp_path, 300)
    assert len(readings) >= soak_length.READINGS
    assert soak_length.grown(readings) == []


def test_what_grows_is_told():
    small, large = soak_length.Reading(1, 0, 5, 100, 10), soak_length.Reading(9, 2**30, 6, 10**6, 20)
    told = " ".join(soak_length.grown([small, small, large]))
    assert "memory rose" in told
    assert "open files rose from 5 to 6" in told
    assert "state rose from 100 to 1000000" in told
