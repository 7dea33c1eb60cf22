"""A fleet whose states are more than memory, and a home folder that nothing is written to."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import fedade.products.run_folder
from fedade.cli.main import main
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + {more}, used + {more}))
main()
"""
"""The command line with so many bytes of memory of its own; files that are mapped do not count."""

CLIENTS, MEMORY = 24_000, 600 * 2**20
"""Of small-cnn a client of `ditto` keeps 36 kilobytes, which all clients together have no room for."""
FEW_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""Every thread reserves tens of megabytes that it may never use, and how many there are differs by machine."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit a process's own memory")
@pytest.mark.parametrize(("kept", "code"), [("file", 0), ("memory", 1)])
def test_more_states_than_memory_live_in_files(cache, tmp_path, kept, code):
    settings = (
        f"scenario.num_clients={CLIENTS}", "scenario.num_timesteps=2", "protocol.scored_clients=20",
        "protocol.participation=0.0005", f"execution.client_state={kept}",
    )  # fmt: skip
    words = ["run", "--method", "ditto", "--out", "r", *(word for text in settings for word in ("--set", text))]
    (tmp_path / "home").mkdir()
    places = {
        "HOME": str(tmp_path / "home"),
        "MPLCONFIGDIR": str(tmp_path / "plots"),
        "FEDADE_CACHE": cache,
        **FEW_THREADS,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(more=MEMORY), *words],
        cwd=tmp_path, env={**os.environ, **places}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert ("execution.client_state=file" in done.stderr) == (kept == "memory")
    assert list((tmp_path / "home").rglob("*")) == []
