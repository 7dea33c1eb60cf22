"""Files that are either whole or absent: a kill at any moment leaves the previous version."""

import io
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedade.core.errors import FedadeError
from fedade.core.optional import OptionalModule
from fedade.core.paths import cache_dir

if TYPE_CHECKING:
    from torch import Tensor

# Files of datasets and results are read without PyTorch, which takes seconds to import.
safetensors_torch: Any = OptionalModule("safetensors.torch")


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file at once."""
    if not path.name:
        raise FedadeError(f"cannot write {path}: a folder, not a file; {other_place(path)}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):  # where the folder is a file, there is nothing to remove
            temporary.unlink()
        raise FedadeError(f"cannot write {path}: {error.strerror}; {other_place(path)}") from error


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Replace a `.npy` file at once."""
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    write_bytes(path, content.getvalue())


def other_place(path: Path) -> str:
    """What to do where nothing can be written."""
    if path.resolve().is_relative_to(cache_dir().resolve()):
        return "set FEDADE_CACHE to a folder that can be written, and has room"
    return "choose another place (on the command line: --out), or make room"


def as_json(content: Mapping[str, Any]) -> bytes:
    """The same bytes for the same content, whatever its order."""
    return json.dumps(content, sort_keys=True).encode()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a JSON file at once."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FedadeError(f"{path} is not readable JSON ({error}); delete it and run again") from error
    return content


def write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a YAML file at once."""
    write_bytes(path, yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True).encode())


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping from a file."""
    try:
        content = yaml.safe_load(path.read_text())
    except OSError as error:
        raise FedadeError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where is not None else ""
        raise FedadeError(f"{path} is not YAML{line}; see `fedade list presets` for working examples") from error
    if not isinstance(content, dict):
        raise FedadeError(f"{path} holds {type(content).__name__}, not a mapping of settings")
    return content


def save_tensors(path: Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> None:
    """Replace a safetensors file at once."""
    whole = {name: value.detach().contiguous().cpu().clone() for name, value in tensors.items()}
    write_bytes(path, safetensors_torch.save(whole, dict(metadata)))


def load_tensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Tensors and metadata of a safetensors file."""
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def load_metadata(path: Path) -> dict[str, str]:
    """Metadata of a safetensors file, without its tensors."""
    with _opened(path) as file:
        return dict(file.metadata() or {})


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise FedadeError(f"{path} is damaged ({error}); delete it and run again, finished work is kept") from error
