"""Corrupted images on disk: made once, found again, whole or not at all."""

import os

import numpy as np
import pytest
from natural_images import IMAGES

from fedade.core.errors import FedadeError
from fedade.data.corruptions import registry
from fedade.data.corruptions.registry import corrupt, corrupted_pool, digest_of


def test_the_pool_is_made_once_and_mapped(cache_dir, monkeypatch):
    made = corrupted_pool(IMAGES, "fog", 2, 5, cache_dir / "new")
    np.testing.assert_array_equal(made, corrupt(IMAGES, "fog", 2, seed=5))
    monkeypatch.setattr(registry, "corrupt", lambda *_: pytest.fail("the cached file was not used"))
    again = corrupted_pool(IMAGES, "fog", 2, 5, cache_dir / "new")
    assert isinstance(again, np.memmap)
    assert not again.flags.writeable
    np.testing.assert_array_equal(again, made)


def test_the_pool_needs_no_folder_and_keeps_no_clean_images(cache_dir):
    np.testing.assert_array_equal(corrupted_pool(IMAGES, "snow", 1, 0, cache_dir=None), corrupt(IMAGES, "snow", 1))
    assert corrupted_pool(IMAGES, "snow", 0, 0, cache_dir) is IMAGES
    assert not list(cache_dir.iterdir())


def test_whatever_determines_the_pool_names_its_file(cache_dir, monkeypatch):
    corrupted_pool(IMAGES, "contrast", 1, 0, cache_dir)
    corrupted_pool(IMAGES, "contrast", 2, 0, cache_dir)
    corrupted_pool(IMAGES, "contrast", 1, 1, cache_dir)
    corrupted_pool(IMAGES, "brightness", 1, 0, cache_dir)
    corrupted_pool(IMAGES[::-1], "contrast", 1, 0, cache_dir)
    monkeypatch.setattr(registry, "ALGORITHM_VERSION", registry.ALGORITHM_VERSION + 1)
    corrupted_pool(IMAGES, "contrast", 1, 0, cache_dir)
    assert len(list(cache_dir.iterdir())) == 6


def test_a_known_digest_names_the_same_file(cache_dir):
    for digest in (None, digest_of(IMAGES)):
        corrupted_pool(IMAGES, "contrast", 1, 0, cache_dir, digest)
    assert len(list(cache_dir.iterdir())) == 1


@pytest.mark.parametrize("kept_bytes", [0, 5, 100, 5000])
def test_a_truncated_pool_is_made_anew(kept_bytes, cache_dir):
    expected = np.array(corrupted_pool(IMAGES, "pixelate", 3, 0, cache_dir))
    (file,) = cache_dir.iterdir()
    file.write_bytes(file.read_bytes()[:kept_bytes])
    np.testing.assert_array_equal(corrupted_pool(IMAGES, "pixelate", 3, 0, cache_dir), expected)
    assert list(cache_dir.iterdir()) == [file]


def test_a_pool_file_that_holds_another_array_is_made_anew(cache_dir):
    expected = np.array(corrupted_pool(IMAGES, "pixelate", 3, 0, cache_dir))
    (file,) = cache_dir.iterdir()
    np.save(file, expected[:2])
    np.testing.assert_array_equal(corrupted_pool(IMAGES, "pixelate", 3, 0, cache_dir), expected)


def test_a_write_that_fails_leaves_nothing_behind(cache_dir, monkeypatch):
    def disk_full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(FedadeError, match="No space left on device"):
        corrupted_pool(IMAGES, "contrast", 1, 0, cache_dir)
    assert not list(cache_dir.iterdir())


def test_a_cache_folder_that_is_a_file_is_named(cache_dir, monkeypatch):
    monkeypatch.setenv("FEDADE_CACHE", str(cache_dir))
    (cache_dir / "taken").write_text("")
    with pytest.raises(FedadeError, match=r"cannot write .*taken.*; set FEDADE_CACHE to a folder that can be written"):
        corrupted_pool(IMAGES, "contrast", 1, 0, cache_dir / "taken")
