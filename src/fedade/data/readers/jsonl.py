"""Files with a JSON object per line, plain or compressed with Zstandard."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedade.core.errors import FedadeError
from fedade.core.optional import OptionalModule
from fedade.data.checksums import damaged

zstandard: Any = OptionalModule("zstandard", "text")

COMPRESSED = ".zst"


class JsonRecord:
    """One object and where it stands, so that a message can name the line."""

    def __init__(self, content: dict[str, Any], place: str) -> None:
        self._content = content
        self.place = place

    def text(self, field: str) -> str:
        """A field that must be there and hold some text."""
        value = self._content.get(field)
        if not isinstance(value, str) or not value.strip():
            raise FedadeError(f"{self.place}: field {field!r} is {value!r}; expected some text")
        return value

    def records(self, field: str) -> list["JsonRecord"]:
        """A list of objects; empty where the field is absent."""
        value = self._content.get(field) or []
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise FedadeError(f"{self.place}: field {field!r} is not a list of objects; replace the file")
        return [JsonRecord(entry, f"{self.place}, {field}") for entry in value]


def read_records(path: Path) -> Iterator[JsonRecord]:
    """The objects of a file, in order."""
    for number, line in enumerate(_content(path).splitlines(), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            content = json.loads(line)
        except ValueError as error:
            raise FedadeError(f"{place} is not JSON ({error}); mend the line or replace the file") from error
        if not isinstance(content, dict):
            raise FedadeError(
                f"{place} holds {type(content).__name__}, not an object; mend the line or replace the file"
            )
        yield JsonRecord(content, place)


def existing(folder: Path, name: str) -> Path | None:
    """The file of a name in a folder, plain or else compressed; None when there is neither."""
    return next((path for path in (folder / name, folder / f"{name}{COMPRESSED}") if path.is_file()), None)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FedadeError(f"cannot read {path}: {error.strerror}") from error
    if path.suffix != COMPRESSED:
        return content
    frame = zstandard.ZstdDecompressor().decompressobj()
    try:
        unpacked: bytes = frame.decompress(content)
    except zstandard.ZstdError as error:
        raise damaged(path, str(error)) from error
    if not frame.eof:
        raise damaged(path, "the compressed frame breaks off")
    return unpacked
