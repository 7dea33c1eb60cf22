"""Checksums of published files: what proves that a copy on disk is the one its authors released."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedade.core.errors import FedadeError

FileVerdict = Literal["verified", "altered", "unknown"]


@dataclass(frozen=True)
class PublishedFile:
    """A file as its authors released it: its size and its digest, written `algorithm:hex`."""

    size: int
    digest: str

    @property
    def algorithm(self) -> str:
        return self.digest.partition(":")[0]


def published_files(listing: str) -> dict[str, PublishedFile]:
    """Files by name, from a line for each: its size, its digest and its name."""
    lines = (line.split() for line in listing.strip().splitlines())
    return {name: PublishedFile(int(size), digest) for size, digest, name in lines}


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file's content, written `algorithm:hex`."""
    with path.open("rb") as file:
        # Some authors publish md5 only; it guards against damage here, not against an adversary.
        hasher = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{hasher.hexdigest()}"


def verdict(path: Path, published: Mapping[str, PublishedFile]) -> FileVerdict:
    """Whether a file is the published one of its name, an altered copy of it, or not one we know.

    The same name exists in other releases, so only a copy of the published size counts as altered.
    """
    release = published.get(path.name)
    if release is None:
        return "unknown"
    if file_digest(path, release.algorithm) == release.digest:
        return "verified"
    return "altered" if path.stat().st_size == release.size else "unknown"


def refuse_altered(path: Path, published: Mapping[str, PublishedFile]) -> None:
    """Raise when a file has the name and size of a published one but not its content."""
    if verdict(path, published) == "altered":
        release = published[path.name]
        raise FedadeError(
            f"{path} was altered: its checksum is {file_digest(path, release.algorithm)}, "
            f"the published one is {release.digest}; replace it with a fresh copy"
        )


def damaged(path: Path, reason: str) -> FedadeError:
    """The error for a file that cannot be read as what it claims to be."""
    checksum = file_digest(path) if path.is_file() else "no file"
    return FedadeError(f"{path} is truncated or damaged ({one_line(reason)}; {checksum}); replace it with a fresh copy")


def one_line(reason: object) -> str:
    """Another library's complaint as a short single line, fit to stand inside a message."""
    text = " ".join(str(reason).split())
    return text if len(text) <= 160 else f"{text[:157]}..."
