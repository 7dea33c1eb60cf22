"""Unpacks archives so that nothing lands outside the folder meant for it."""

import tarfile
import zipfile
from pathlib import Path, PurePosixPath

from fedade.core.errors import FedadeError
from fedade.data.checksums import damaged


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
