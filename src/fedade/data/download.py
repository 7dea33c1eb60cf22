"""Public files: checksums that prove a copy to be the published one; downloads by https only, whole or not at all."""

import hashlib
import os
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from fedade.core.errors import FedadeError

FileVerdict = Literal["verified", "altered", "unknown"]


class PublishedFile(NamedTuple):
    """A file as its authors released it: its size and its digest, written `algorithm:hex`."""

    size: int
    digest: str


def published_files(listing: str) -> dict[str, PublishedFile]:
    """Files by name, from a line for each: its size, its digest and its name."""
    lines = (line.split() for line in listing.strip().splitlines())
    return {name: PublishedFile(int(size), digest) for size, digest, name in lines}


def file_digest(path: Path, like: str = "sha256") -> str:
    """A file's digest by the same algorithm as another, both written `algorithm:hex`."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        # Some authors publish md5 only; it guards against damage here, not against an adversary.
        hasher = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{hasher.hexdigest()}"


def verdict(path: Path, published: Mapping[str, PublishedFile]) -> FileVerdict:
    """Whether a file is the published one of its name, an altered copy of it, or not one we know. The same name exists
    in other releases, so only a copy of the published size counts as altered."""
    release = published.get(path.name)
    if release is None:
        return "unknown"
    if file_digest(path, release.digest) == release.digest:
        return "verified"
    return "altered" if path.stat().st_size == release.size else "unknown"


def refuse_altered(path: Path, published: Mapping[str, PublishedFile]) -> None:
    """Raise when a file has the name and size of a published one but not its content."""
    if verdict(path, published) == "altered":
        release = published[path.name]
        raise FedadeError(
            f"{path} was altered: its checksum is {file_digest(path, release.digest)}, "
            f"the published one is {release.digest}; replace it with a fresh copy"
        )


def damaged(path: Path, reason: str) -> FedadeError:
    """The error for a file that cannot be read as what it claims to be."""
    checksum = file_digest(path) if path.is_file() else "no file"
    return FedadeError(f"{path} is truncated or damaged ({one_line(reason)}; {checksum}); replace it with a fresh copy")


def unreadable_array(path: Path, name: str, error: Exception) -> FedadeError:
    """The error for an array that numpy does not read; its own words tell how to unpickle what a stranger wrote."""
    reason = str(error)
    if "Object arrays" in reason or "Python objects" in reason:
        return FedadeError(
            f"{path}: {name} are Python objects, as numpy makes of missing values, text and rows of unequal length; "
            "store numbers"
        )
    return damaged(path, "it holds no array" if "pickle" in reason else reason)


def one_line(reason: object) -> str:
    """Another library's complaint as a short single line, fit to stand inside a message."""
    text = " ".join(str(reason).split())
    return text if len(text) <= 160 else f"{text[:157]}..."


DownloadProgress = Callable[[int, int | None], None]
"""Told the bytes received so far and, where the server says it, the bytes in all."""
BLOCK = 1 << 20
TIMEOUT_SECONDS = 30


class Archive(NamedTuple):
    """A public archive: where it is, its digest (`algorithm:hex`) and the folder it unpacks to."""

    url: str
    digest: str
    folder: str


class UnreachableError(Exception):
    """The server could not be reached or broke off; the caller knows what to suggest instead."""


class HttpsOnly(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to another https address."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def require_https(url: str) -> None:
    if urlsplit(url).scheme != "https":
        raise FedadeError(f"{url} is refused: downloads use https only")


def open_url(url: str) -> Any:
    require_https(url)
    request = urllib.request.Request(url, headers={"User-Agent": "fedade"})  # noqa: S310 - https, checked above
    return urllib.request.build_opener(HttpsOnly).open(request, timeout=TIMEOUT_SECONDS)


def download(archive: Archive, target: Path, progress: DownloadProgress | None = None) -> Path:
    """Download, check and unpack an archive below a folder; returns the folder it unpacked to. All work happens in a
    temporary folder beside the target, so a failure at any point leaves nothing behind."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target) as working:
            received = Path(working) / archive.url.rpartition("/")[2]
            _receive(archive.url, received, progress)
            actual = file_digest(received, archive.digest)
            if actual != archive.digest:
                raise FedadeError(
                    f"{archive.url} arrived altered: its checksum is {actual}, "
                    f"the published one is {archive.digest}; try again, or fetch it by other means"
                )
            unpack(received, Path(working))
            return _put_in_place(Path(working) / archive.folder, target / archive.folder)
    except OSError as error:
        raise FedadeError(f"cannot store {archive.url} in {target}: {error.strerror or error}") from error


def _receive(url: str, path: Path, progress: DownloadProgress | None) -> None:
    try:
        with open_url(url) as response, path.open("wb") as file:
            length = response.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            received = 0
            while block := response.read(BLOCK):
                file.write(block)
                received += len(block)
                if progress is not None:
                    progress(received, total)
    # urllib's URLError and a socket's timeouts are OSErrors, as is a full disk, which says so by itself.
    except (OSError, HTTPException) as error:
        raise UnreachableError(f"{url} cannot be fetched ({one_line(error)})") from error


def _put_in_place(unpacked: Path, final: Path) -> Path:
    if not unpacked.is_dir():
        raise FedadeError(f"the archive did not unpack to {final.name}; it is not the published one")
    if final.exists():
        os.replace(final, unpacked.with_name(f"replaced-{final.name}"))
    os.replace(unpacked, final)
    return final


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar or zip archive into a folder; members that point outside it are refused."""
    try:
        if zipfile.is_zipfile(archive):
            _unpack_zip(archive, target)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(target, filter="data")
    except tarfile.FilterError as error:
        raise FedadeError(f"{archive} is refused: {error}; download it from its public source") from error
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise damaged(archive, str(error)) from error


def _unpack_zip(archive: Path, target: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        for name in content.namelist():
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts:
                raise FedadeError(
                    f"{archive} is refused: {name!r} would be extracted outside the destination; "
                    "download it from its public source"
                )
        content.extractall(target)  # noqa: S202 - names are checked above
