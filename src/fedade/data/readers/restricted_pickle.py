"""Reads the pickles of the CIFAR releases without ever running what a pickle asks for.

A pickle names the functions it wants called. Here every name is looked up in a closed table of stand-ins that
only keep what they are given, so that neither numpy's own unpickling nor any other code sees hostile state.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedade.core.errors import FedadeError
from fedade.data.checksums import damaged, one_line


class PickledDtype:
    """Stands in for `numpy.dtype`: keeps the type code."""

    code: str = ""

    def __init__(self, code: object, *_flags: object) -> None:
        self.code = str(code)

    def __setstate__(self, _state: object) -> None:
        """Byte order and layout of multi-byte types; the bytes of these files have neither."""


class PickledArray:
    """Stands in for `numpy.ndarray` and the function that rebuilds one: keeps shape, type and raw bytes."""

    state: object = None

    def __init__(self, *_placeholder: object) -> None:
        """numpy's pickles first ask for an empty array and then set its state."""

    def __setstate__(self, state: object) -> None:
        self.state = state

    def to_numpy(self) -> NDArray[np.uint8]:
        """The array of bytes, rebuilt from its parts; ValueError when they do not describe one."""
        match self.state:
            case (_, tuple(shape), PickledDtype(code="u1" | "uint8"), fortran_order, bytes() | str() as raw):
                content = np.frombuffer(raw.encode("latin1") if isinstance(raw, str) else raw, dtype=np.uint8)
                sizes = [int(size) for size in shape]
                return content.reshape(sizes, order="F") if fortran_order else content.reshape(sizes)
        raise ValueError("its array is not one of unsigned bytes")


class PickledBuffer(PickledArray):
    """Stands in for the function that rebuilds an array from one contiguous buffer (pickle protocol 5)."""

    def __init__(self, raw: object, dtype: object, shape: object, order: object) -> None:
        self.state = (1, shape, dtype, order == "F", bytes(raw) if isinstance(raw, bytearray) else raw)


class Latin1Bytes(bytes):
    """Stands in for `_codecs.encode`, with which old pickle protocols spell bytes."""

    def __new__(cls, text: str, _encoding: str = "latin1") -> "Latin1Bytes":
        return super().__new__(cls, text.encode("latin1"))


ADMITTED: Mapping[tuple[str, str], Any] = {
    ("_codecs", "encode"): Latin1Bytes,
    ("numpy", "dtype"): PickledDtype,
    ("numpy", "ndarray"): PickledArray,
    ("numpy.core.multiarray", "_reconstruct"): PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): PickledArray,
    ("numpy.core.numeric", "_frombuffer"): PickledBuffer,
    ("numpy._core.numeric", "_frombuffer"): PickledBuffer,
}


class RefusedGlobalError(Exception):
    """A pickle asked for a name outside the closed table."""


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that knows the names of `ADMITTED` and no others."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """The stand-in for an admitted name; every other name is refused before it is imported."""
        if (module_name, global_name) not in ADMITTED:
            raise RefusedGlobalError(f"{module_name}.{global_name}")
        return ADMITTED[module_name, global_name]


def load_restricted(path: Path) -> dict[str, Any]:
    """The dictionary pickled in a file, its keys as text; nothing in the file is executed."""
    try:
        with path.open("rb") as file:
            content = RestrictedUnpickler(file, encoding="latin1").load()
    except RefusedGlobalError as error:
        raise FedadeError(
            f"{path} is not a CIFAR batch: its pickle asks for {one_line(error)}, which is refused "
            "and was not run; replace it with the published file"
        ) from error
    except OSError as error:
        raise FedadeError(f"{path} cannot be read: {error.strerror}") from error
    # A damaged or hostile pickle can fail in any of its opcodes.
    except Exception as error:
        raise damaged(path, f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise damaged(path, f"it holds a {type(content).__name__}, not a dictionary")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in content.items()}
