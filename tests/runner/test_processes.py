"""Processes of a run end with it, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedade.core.errors import DeviceLostError
from fedade.core.events import Listener
from fedade.runner.executors import Processes, ProcessLostError

SCRIPT = """
import os, signal, sys, time
from pathlib import Path

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which `nohup`, above the test, would have it ignore

def work(worker, folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(300)

if __name__ == "__main__":
    from fedade.core.events import Listener
    from fedade.runner.executors import Processes

    list(Processes(2, Listener())(work, [sys.argv[1]] * 2))
"""

SLOW_IMPORT = """
import os, sys, time
from pathlib import Path

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" and "--multiprocessing-fork" in sys.orig_argv:
            Path(os.environ["TEST_MARK"], f"importing-{os.getpid()}").touch()
            time.sleep(120)

sys.meta_path.insert(0, Slow())
"""


def family(folder: Path) -> list[int]:
    """Every process whose environment or working folder names the test's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            marked = entry.name.isdecimal() and str(folder).encode() in (entry / "environ").read_bytes()
            if marked and (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def left_after_a_while(mark: Path) -> list[int]:
    """Its processes that have not ended by themselves; they are ended."""
    deadline = time.monotonic() + 20
    while family(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = family(mark)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


@pytest.mark.slow  # two processes import PyTorch
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_workers_end_with_the_run_that_started_them(tmp_path, number):
    if not Path("/proc").is_dir():
        pytest.skip("needs /proc")
    (tmp_path / "script.py").write_text(SCRIPT)
    (pids := tmp_path / "pids").mkdir()
    variables = {**os.environ, "TEST_MARK": str(tmp_path)}
    runner = subprocess.Popen([sys.executable, str(tmp_path / "script.py"), str(pids)], env=variables)
    deadline = time.monotonic() + 60
    while len(list(pids.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(family(tmp_path)) >= 3
    runner.send_signal(number)
    runner.wait()
    assert not left_after_a_while(tmp_path)


@pytest.mark.slow  # two processes import PyTorch
def test_workers_end_with_a_run_that_is_killed_while_they_begin(tmp_path):
    """They are on their leash before they import anything that takes long."""
    if not Path("/proc").is_dir():
        pytest.skip("needs /proc")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT)
    (tmp_path / "pids").mkdir()
    variables = {**os.environ, "TEST_MARK": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    runner = subprocess.Popen([sys.executable, str(tmp_path / "script.py"), str(tmp_path / "pids")], env=variables)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.glob("importing-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    runner.kill()
    runner.wait()
    assert not left_after_a_while(tmp_path)
    assert not list((tmp_path / "pids").iterdir())


def answered_unless_lost(worker, task):
    if task == "fails":
        raise DeviceLostError(RuntimeError("CUDA error: an illegal memory access was encountered"))
    return os.getpid()


@pytest.mark.slow
def test_a_process_whose_gpu_failed_ends_and_another_does_the_rest():
    answers = dict(Processes(1, Listener())(answered_unless_lost, ["first", "fails", "last"]))
    assert isinstance(answers["fails"], ProcessLostError)
    assert answers["first"] != answers["last"]
