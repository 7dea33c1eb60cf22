"""Corrupted images kept on disk, so that a benchmark is generated once."""

import hashlib
from pathlib import Path

import numpy as np

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.data.corruptions.corrupting import check_request, corrupt
from fedade.data.corruptions.pixels import ByteImages

ALGORITHM_VERSION = 1
"""Raised whenever a corruption's pixels change, so that older cached images are not used again."""


def digest_of(images: ByteImages) -> str:
    """A name that two arrays of images share only if they are the same."""
    digest = hashlib.blake2b(f"{images.shape}/".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(images).data)
    return digest.hexdigest()


def corrupted_pool(
    images: ByteImages, name: str, severity: int, seed: int, cache_dir: Path | None, digest: str | None = None
) -> ByteImages:
    """What `corrupt` returns, as a read-only memory map of a file in `cache_dir`, if one is given.

    The file is named by a hash of all that determines it; who asks for many corruptions of the same images computes
    their `digest` once. It appears whole or not at all, and is made anew when it was truncated or is not the array it
    should be.
    """
    check_request(images, name, severity, seed)
    if cache_dir is None or severity == 0:
        return corrupt(images, name, severity, seed)
    identity = f"{ALGORITHM_VERSION}/{name}/{severity}/{seed}/{digest or digest_of(images)}"
    path = cache_dir / f"{name}-{severity}-{hashlib.blake2b(identity.encode(), digest_size=16).hexdigest()}.npy"
    cached = _memory_map(path, images.shape)
    if cached is None:
        _write(path, corrupt(images, name, severity, seed))
        cached = _memory_map(path, images.shape)
    if cached is None:
        raise FedadeError(f"cached images {path} cannot be read back; check the disk, or use another cache")
    return cached


def _memory_map(path: Path, shape: tuple[int, ...]) -> ByteImages | None:
    """The array in the file, or None where the file is missing, cut short or another array."""
    try:
        array: ByteImages = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    is_ours = isinstance(array, np.memmap) and array.dtype == np.uint8 and array.shape == shape
    return array if is_ours else None


def _write(path: Path, images: ByteImages) -> None:
    try:
        storage.write_array(path, images)
    except FedadeError as failure:
        raise FedadeError(
            f"cannot cache corrupted images in {path.parent} ({failure.__cause__}); "
            "free some space, or point FEDADE_CACHE to a folder that can be written"
        ) from failure
