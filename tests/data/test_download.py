"""Downloads are checked, atomic and confined, and fail in one line; no test here uses a network."""

import hashlib
import io
import tarfile
import urllib.error
import urllib.request
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from tiny_layouts import write_cifar10_batches, write_cifar10_parquet

from fedade.core.errors import FedadeError
from fedade.data import download, registry
from fedade.data.download import Archive, unpack
from fedade.data.registry import DATASETS
from fedade.data.specs import BundledSpec, TextSpec


class Response(io.BytesIO):
    """What a server answers."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.headers = Message()
        self.headers["Content-Length"] = str(len(content))


def tar_of(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    return buffer.getvalue()


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes, digest: str | None = None) -> list[str]:
    """Let every address answer with the content, and CIFAR-10 expect it; returns the addresses asked for."""
    asked: list[str] = []

    def open_url(url: str) -> Response:
        asked.append(url)
        return Response(content)

    archive = Archive(
        "https://example.org/cifar-10-python.tar.gz",
        digest or f"sha256:{hashlib.sha256(content).hexdigest()}",
        "cifar-10-batches-py",
    )
    monkeypatch.setattr(download, "open_url", open_url)
    spec = DATASETS["cifar10"]
    monkeypatch.setattr(registry, "DATASETS", {**DATASETS, "cifar10": type(spec)(**{**vars(spec), "archive": archive})})
    return asked


def refuse_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_url(url: str) -> Response:
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(download, "open_url", open_url)


def test_a_missing_dataset_is_fetched_checked_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10_batches(tmp_path / "server")
    content = tar_of(tmp_path / "server/cifar-10-batches-py")
    asked = serve(monkeypatch, content)
    told: list[tuple[int, int | None]] = []
    target = tmp_path / "data"
    target.mkdir()
    registry.fetch("cifar10", target, lambda *seen: told.append(seen))
    dataset = registry.load("cifar10", target)
    assert len(dataset.train) == 20
    assert asked == ["https://example.org/cifar-10-python.tar.gz"]
    assert told[-1] == (len(content), len(content))
    assert [path.name for path in target.iterdir()] == ["cifar-10-batches-py"]


def test_an_altered_download_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10_batches(tmp_path / "server")
    serve(monkeypatch, tar_of(tmp_path / "server/cifar-10-batches-py"), digest="md5:" + "0" * 32)
    with pytest.raises(FedadeError, match=r"arrived altered: its checksum is md5:[0-9a-f]{32}, .* md5:0{32}"):
        registry.fetch("cifar10", tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_fetching_replaces_a_partial_copy_of_the_same_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10_batches(tmp_path / "server", batches=(1, 2))
    write_cifar10_batches(tmp_path / "data", batches=(1,))
    serve(monkeypatch, tar_of(tmp_path / "server/cifar-10-batches-py"))
    assert len(registry.load("cifar10", tmp_path / "data").train) == 10
    assert registry.fetch("cifar10", tmp_path / "data") == tmp_path / "data/cifar-10-batches-py"
    assert len(registry.load("cifar10", tmp_path / "data").train) == 20


def test_a_partial_copy_is_completed_in_its_own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10_parquet(Path("data"), per_class=1)
    write_cifar10_batches(tmp_path / "server")
    serve(monkeypatch, tar_of(tmp_path / "server/cifar-10-batches-py"))
    assert registry.fetch("cifar10") == Path.cwd() / "data/cifar-10-batches-py"


@pytest.mark.parametrize(
    "name", [name for name, spec in DATASETS.items() if not isinstance(spec, BundledSpec | TextSpec)]
)
def test_without_a_network_one_line_says_where_it_looked_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    refuse_network(monkeypatch)
    with pytest.raises(FedadeError) as raised:
        registry.fetch(name, tmp_path / "data")
    message = str(raised.value)
    for part in (
        str(tmp_path / "data"),
        "https://",
        "Name or service not known",
        "--data-dir",
        "FEDADE_DATA",
    ):
        assert part in message
    assert "\n" not in message
    assert list((tmp_path / "data").iterdir()) == []


def test_what_is_installed_needs_no_fetching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_network(monkeypatch)
    assert registry.fetch("digits", tmp_path) is None


def test_every_address_is_https() -> None:
    addresses = [spec.archive.url for spec in DATASETS.values() if not isinstance(spec, BundledSpec | TextSpec)]
    assert len(addresses) >= 5
    assert all(address.startswith("https://") for address in addresses)
    for address in ("http://example.org/x", "file:///etc/passwd", "ftp://example.org/x"):
        with pytest.raises(FedadeError, match="https only"):
            download.open_url(address)


def test_a_redirect_away_from_https_is_refused() -> None:
    request = urllib.request.Request("https://example.org/x")
    handler = download.HttpsOnly()
    with pytest.raises(FedadeError, match=r"http://example\.net/x is refused"):
        handler.redirect_request(request, io.BytesIO(), 302, "Found", Message(), "http://example.net/x")


def hostile_tar(path: Path, member: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as tar:
        tar.addfile(member, io.BytesIO(b"x" * member.size))
    return path


@pytest.mark.parametrize("name", ["../outside", "a/../../outside"])
def test_a_tar_that_climbs_out_is_refused(tmp_path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = 1
    archive = hostile_tar(tmp_path / "hostile.tar", member)
    (tmp_path / "inside").mkdir()
    with pytest.raises(FedadeError, match=r"hostile\.tar is refused: .*outside"):
        unpack(archive, tmp_path / "inside")
    assert not (tmp_path / "outside").exists()


def test_a_tar_with_a_link_that_climbs_out_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("link")
    member.type, member.linkname = tarfile.SYMTYPE, "../../secret"
    archive = hostile_tar(tmp_path / "hostile.tar", member)
    (tmp_path / "inside").mkdir()
    with pytest.raises(FedadeError, match=r"hostile\.tar is refused"):
        unpack(archive, tmp_path / "inside")


@pytest.mark.parametrize("name", ["../outside", "/outside", "..\\outside"])
def test_a_zip_that_climbs_out_is_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "hostile.zip", "w") as content:
        content.writestr(name, "x")
    with pytest.raises(FedadeError, match=r"hostile\.zip is refused"):
        unpack(tmp_path / "hostile.zip", tmp_path / "inside")
    assert not (tmp_path / "inside").exists()


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    write_cifar10_batches(tmp_path)
    (tmp_path / "short.tar.gz").write_bytes(tar_of(tmp_path / "cifar-10-batches-py")[:5000])
    with pytest.raises(FedadeError, match=r"short\.tar\.gz is truncated or damaged"):
        unpack(tmp_path / "short.tar.gz", tmp_path / "inside")
