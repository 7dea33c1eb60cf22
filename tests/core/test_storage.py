import errno
import os
import signal
import stat
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
import safetensors.torch
import torch

from fedade.core import storage, trace
from fedade.core.errors import FedadeError


def test_a_path_that_names_no_file_is_refused_in_one_line():
    with pytest.raises(FedadeError, match="cannot write /: a folder, not a file"):
        storage.write_bytes(Path("/"), b"")


def test_private_files_and_the_folders_made_for_them_are_their_owners_alone(tmp_path, request):
    before = os.umask(0o022)
    request.addfinalizer(lambda: os.umask(before))
    storage.write_bytes(tmp_path / "states" / "ada" / "turn", b"", private=True)
    storage.write_bytes(tmp_path / "open" / "report", b"")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"states": 0o700, "ada": 0o700, "turn": 0o600, "open": 0o755, "report": 0o644}


def test_tensors_are_written_as_the_formats_own_writer_does(tmp_path):
    tensors = {
        "wide": torch.arange(6.0, dtype=torch.float64).view(2, 3),
        "transposed": torch.arange(6.0).view(2, 3).T,
        "half": torch.ones(3, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "none": torch.zeros(0, 4),
        "number": torch.tensor(7),
        "pixels": torch.arange(5, dtype=torch.uint8),
    }
    storage.save_tensors(tmp_path / "ours", tensors, {"b": "ü", "a": "1"})
    loaded, metadata = storage.load_tensors(tmp_path / "ours")
    assert metadata == {"a": "1", "b": "ü"}
    assert loaded.keys() == tensors.keys()
    for name, value in tensors.items():
        assert loaded[name].dtype == value.dtype
        assert torch.equal(loaded[name], value)
    whole = {name: value.contiguous() for name, value in tensors.items()}
    theirs = safetensors.torch.save(whole, {"a": "1", "b": "ü"})
    assert (tmp_path / "ours").stat().st_size == pytest.approx(len(theirs), abs=16)


def test_no_copy_of_large_states_is_made_while_they_are_saved(tmp_path):
    state = torch.zeros(2_000_000)
    storage.save_tensors(tmp_path / "first", {"state": state}, {})  # imports what it needs
    tracemalloc.start()
    storage.save_tensors(tmp_path / "state", {"state": state}, {"a": "b"})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


WRITER = """
import os, sys, signal
from pathlib import Path
from fedade.core import storage
with storage.replacing(Path(sys.argv[1]) / "state") as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_files_of_writers_that_were_killed_are_swept_and_those_of_living_ones_are_not(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout.readline() == "writing\n"
    storage.sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    assert len(list(tmp_path.iterdir())) == 1
    storage.sweep(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_block_that_fails_leaves_the_file_as_it_was(tmp_path):
    storage.write_bytes(tmp_path / "state", b"old")
    with suppress(ValueError), storage.replacing(tmp_path / "state") as file:
        file.write(b"new")
        raise ValueError
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "make room on the disk that it is on, then start the same command again"),
        (errno.EACCES, "choose another place (on the command line: --out)"),
        (errno.ENOMEM, "too little memory is left"),
    ],
)
def test_an_error_tells_a_full_disk_from_a_place_that_cannot_be_written(tmp_path, monkeypatch, number, remedy):
    def fail(_number: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(FedadeError, match=os.strerror(number)) as told:
        storage.write_bytes(tmp_path / "state", b"")
    assert remedy in str(told.value)
    monkeypatch.setenv("FEDADE_CACHE", str(tmp_path))
    with pytest.raises(FedadeError) as told:
        storage.write_bytes(tmp_path / "state", b"")
    assert ("FEDADE_CACHE" in str(told.value)) == (number != errno.ENOMEM)
    assert not list(tmp_path.iterdir())


def test_want_of_memory_is_not_called_damage(tmp_path, monkeypatch):
    def starve(*_args: object, **_options: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    trace.write(tmp_path / "rows-000001-000002.parquet", pa.table({"client": [1]}))
    monkeypatch.setattr(trace.pq, "read_table", starve)
    with pytest.raises(FedadeError, match="too little memory to read") as told:
        trace.read(tmp_path / "rows-000001-000002.parquet")
    assert "delete" not in str(told.value)
