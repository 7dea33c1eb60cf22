"""Files that are either whole or absent: a kill at any moment leaves the previous version."""

import errno
import io
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import filelock
import numpy as np
import yaml
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedade.core.errors import FedadeError, first_line
from fedade.core.importing import OptionalModule
from fedade.core.paths import is_cached, other_place

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from torch import Tensor

# Files of datasets and results are read without PyTorch, which takes seconds to import.
torch: Any = OptionalModule("torch")

_SAFETENSORS_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def write_bytes(path: Path, content: bytes, private: bool = False) -> None:
    """Replace a file at once; a private one, and the folders made for it, are their owner's alone."""
    with replacing(path, private) as file:
        file.write(content)


@contextmanager
def replacing(path: Path, private: bool = False) -> Iterator[BinaryIO]:
    """A file that takes the place of another when the block ends, and never does if the block fails."""
    if not path.name:
        raise FedadeError(f"cannot write {path}: a folder, not a file; {other_place(path)}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        for missing in reversed([above for above in path.parents if not above.exists()]):
            missing.mkdir(0o700 if private else 0o777, exist_ok=True)
        path.parent.mkdir(exist_ok=True)  # says what is wrong where the folder is a file
        with _locked_file(temporary, 0o600 if private else 0o666) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(path)  # while it is locked: a sweep takes what nobody holds for dead
    except BaseException as error:
        with suppress(OSError):  # where the folder is a file, there is nothing to remove
            temporary.unlink()
        if isinstance(error, OSError):
            raise FedadeError(f"cannot write {path}: {error.strerror}; {remedy(path, error)}") from error
        raise


@contextmanager
def _locked_file(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A new file that is locked as long as it is open, or its writer lives."""
    while True:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            _lock(file, wait=True)
            if os.fstat(file.fileno()).st_nlink:  # else a sweep came between
                yield file
                return


def _lock(file: BinaryIO, wait: bool) -> None:
    """Raises OSError where somebody else holds it and is not to be waited for."""
    if fcntl is not None:  # elsewhere an open file cannot be removed, which is all that the lock is for
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def sweep(folder: Path) -> None:
    """Remove what writers that were killed have left here and below."""
    for path in folder.rglob(".*.tmp"):
        with suppress(OSError), path.open("rb") as file:
            _lock(file, wait=False)
            path.unlink()


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Nobody else is here meanwhile; without `wait`, `filelock.Timeout` says that somebody is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path)
        lock.acquire(timeout=-1 if wait else 0)
    except filelock.Timeout:
        raise
    except OSError as error:
        raise FedadeError(f"cannot write to {path.parent}: {error.strerror}; {remedy(path, error)}") from error
    try:
        yield
    finally:
        lock.release()


def reserve(path: Path, size: int) -> None:
    """Make a file this long and take its room on the disk: a map that is written to and finds none ends the process."""
    try:
        with path.open("r+b" if path.exists() else "wb") as file:
            if hasattr(os, "posix_fallocate"):  # neither on Windows nor on macOS
                os.posix_fallocate(file.fileno(), 0, size)
            file.truncate(size)
    except OSError as error:
        raise FedadeError(f"cannot write {path}: {error.strerror}; {remedy(path, error)}") from error


def write_array(path: Path, array: NDArray[Any]) -> None:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    write_bytes(path, content.getvalue())


@contextmanager
def reading_arrays() -> Iterator[None]:
    """Within the block a damaged file of arrays is a ValueError, or an OSError or LookupError: zipfile, zlib and the
    tokeniser, which NumPy calls, have kinds of their own that nobody lists."""
    try:
        yield
    except (OSError, MemoryError, ValueError, LookupError):
        raise
    except Exception as error:
        raise ValueError(first_line(error)) from error


def remedy(path: Path, error: OSError) -> str:
    """What to do about a file that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        whose = "the cache is on (FEDADE_CACHE names another)" if is_cached(path) else "it is on"
        return f"make room on the disk that {whose}, then start the same command again"
    if error.errno == errno.ENOMEM:
        return "too little memory is left; end other programs, then start the same command again"
    return other_place(path)


def unreadable(path: Path, error: BaseException, otherwise: str) -> FedadeError:
    """What is said of a file that cannot be read: for want of memory, or as the caller says."""
    number = getattr(error, "errno", None)
    if isinstance(error, MemoryError) or number == errno.ENOMEM or "os error 12" in str(error):
        return FedadeError(f"too little memory to read {path}; end other programs, or use fewer --jobs")
    return FedadeError(otherwise)


def as_json(content: Mapping[str, Any]) -> bytes:
    """The same bytes for the same content, whatever its order."""
    return json.dumps(content, sort_keys=True).encode()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FedadeError(f"{path} is not readable JSON ({error}); delete it and run again") from error
    return content


def write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    write_bytes(path, yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True).encode())


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise FedadeError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where is not None else ""
        raise FedadeError(f"{path} is not YAML{line}; see `fedade list presets` for working examples") from error
    if not isinstance(content, dict):
        raise FedadeError(f"{path} holds {type(content).__name__}, not a mapping of settings")
    return content


def save_tensors(
    path: Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str], private: bool = False
) -> None:
    """Replace a safetensors file at once, tensor by tensor: no copy of the whole is made in memory."""
    # Those of the widest numbers first, so that all are aligned; as the format's own writer does.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, value in ordered:
        begin, end = end, end + value.numel() * value.element_size()
        kind = _SAFETENSORS_TYPES[str(value.dtype).removeprefix("torch.")]
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with replacing(path, private) as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for _, value in ordered:
            if value.numel():
                plain = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
                file.write(plain.numpy().data)


def load_tensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


AGAIN = "delete it and run again, finished work is kept"


def load_metadata(path: Path, if_damaged: str = AGAIN) -> dict[str, str]:
    """Metadata of a safetensors file, without its tensors; `if_damaged` says what to do about one that is."""
    with _opened(path, if_damaged) as file:
        return dict(file.metadata() or {})


@contextmanager
def _opened(path: Path, if_damaged: str = AGAIN) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError, MemoryError) as error:
        raise unreadable(path, error, f"{path} is damaged ({error}); {if_damaged}") from error
