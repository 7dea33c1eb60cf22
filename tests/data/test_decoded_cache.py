"""Images are decoded once; a cache entry is whole or not there."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from tiny_layouts import encoded, some_images, write_cifar10_parquet, write_parquet

from fedade.core.errors import FedadeError
from fedade.data import cache
from fedade.data.readers.parquet import ParquetShards
from fedade.data.registry import load


def entries() -> list[Path]:
    """Everything in the cache but its locks."""
    root = cache.cache_root()
    return [path for path in root.iterdir() if path.suffix != ".lock"] if root.is_dir() else []


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("the source was read again")

    monkeypatch.setattr(ParquetShards, "read", read)


def test_the_second_load_reads_the_cache_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = write_cifar10_parquet(tmp_path)
    first = load("cifar10", tmp_path)
    forbid_reading(monkeypatch)
    second = load("cifar10", tmp_path)
    assert isinstance(second.train.inputs, np.memmap)
    assert not second.train.inputs.flags.writeable
    np.testing.assert_array_equal(second.train.inputs, images)
    np.testing.assert_array_equal(second.train.labels, first.train.labels)
    assert (second.class_names, second.partial) == (first.class_names, first.partial)


def test_a_changed_source_is_decoded_again(tmp_path: Path) -> None:
    write_cifar10_parquet(tmp_path)
    load("cifar10", tmp_path)
    changed = some_images(10, seed=5)
    write_parquet(
        tmp_path / "cifar10/plain_text/train-00000-of-00001.parquet", [encoded(i) for i in changed], range(10)
    )
    np.testing.assert_array_equal(load("cifar10", tmp_path).train.inputs, changed)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def scribble(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5:] = b"\0\0\0\0\0"
    path.write_bytes(content)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize("damage", [truncate, scribble, Path.unlink])
@pytest.mark.parametrize("file", ["train_images.npy", "test_labels.npy", "manifest.json"])
def test_a_damaged_entry_is_rebuilt(tmp_path: Path, file: str, damage: object) -> None:
    images = write_cifar10_parquet(tmp_path)
    load("cifar10", tmp_path)
    (entry,) = entries()
    damage(entry / file)  # type: ignore[operator]
    dataset = load("cifar10", tmp_path)
    np.testing.assert_array_equal(dataset.train.inputs, images)
    np.testing.assert_array_equal(dataset.test.labels, range(10))
    assert cache.is_sound(entry)


def test_a_failed_decoding_leaves_nothing_behind(tmp_path: Path) -> None:
    contents = [encoded(image) for image in some_images(9)] + [b"not an image"]
    for part in ("train", "test"):
        write_parquet(tmp_path / f"cifar10/plain_text/{part}-0.parquet", contents, range(10))
    with pytest.raises(FedadeError, match="row 9 is not a readable image"):
        load("cifar10", tmp_path)
    assert entries() == []


def test_what_a_killed_build_left_is_cleared(tmp_path: Path) -> None:
    write_cifar10_parquet(tmp_path)
    load("cifar10", tmp_path)
    (entry,) = entries()
    killed = entry.with_name(f".building-{entry.name}")
    entry.rename(killed)
    (killed / "manifest.json").unlink()
    load("cifar10", tmp_path)
    assert entries() == [entry]


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10_parquet(tmp_path)
    (tmp_path / "a-file").write_text("")
    monkeypatch.setenv("FEDADE_CACHE", str(tmp_path / "a-file"))
    with pytest.raises(FedadeError, match=r"cache of decoded images .*a-file.* cannot be written .*FEDADE_CACHE"):
        load("cifar10", tmp_path)


def test_a_full_disk_is_told_before_a_map_of_it_kills_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_cifar10_parquet(tmp_path)
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(FedadeError, match=r"make room on the disk that the cache is on .FEDADE_CACHE"):
        load("cifar10", tmp_path)
    assert entries() == []
