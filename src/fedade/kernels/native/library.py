"""Compiling and loading the C++ convolutions, where there is a compiler."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
import warnings
from functools import cache
from pathlib import Path

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.normalisation import current_pass
from fedade.core.paths import cache_dir

SOURCE = Path(__file__).with_name("convolution.cpp")
OPTIONS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")
COMPILERS = ("g++", "clang++", "c++")
SWITCH = "FEDADE_NATIVE"
"""Set to 0 in the environment: do without."""

_POINTER, _NUMBER = ctypes.c_void_p, ctypes.c_long
SIGNATURES: dict[str, list[type]] = {
    "fedade_keep_freed_memory": [],
    "fedade_convolution": [*[_POINTER] * 4, ctypes.c_int, *[_NUMBER] * 5, _POINTER],
    "fedade_channel_moments": [_POINTER, *[_NUMBER] * 3, _POINTER],
    "fedade_scaled": [*[_POINTER] * 4, ctypes.c_int, *[_NUMBER] * 4, _POINTER],
    "fedade_image_gradient": [*[_POINTER] * 5, *[_NUMBER] * 5, _POINTER],
    "fedade_weight_gradient": [*[_POINTER] * 3, *[_NUMBER] * 5, *[_POINTER] * 2],
}


def native() -> ctypes.CDLL | None:
    """The compiled functions; None, with one warning, where they cannot be had, and where a pass does without."""
    if not current_pass().native:
        return None
    with _LOADING:
        return _loaded()


_LOADING = threading.Lock()
"""Clients on several threads ask at the same moment; one of them compiles."""


@cache
def _loaded() -> ctypes.CDLL | None:
    if os.environ.get(SWITCH) == "0":
        return None
    try:
        library = ctypes.CDLL(str(_compiled()))
    except (FedadeError, OSError) as error:
        warnings.warn(f"CPU convolutions run at about half their speed: {error}", stacklevel=3)
        return None
    for name, arguments in SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None
    library.fedade_keep_freed_memory()
    return library


def _compiled() -> Path:
    """The shared library of this source, these options and this processor."""
    compiler = os.environ.get("CXX") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        raise FedadeError(f"no C++ compiler found; install one of {', '.join(COMPILERS)}, or set {SWITCH}=0")
    sources = (path.read_text() for path in sorted(SOURCE.parent.glob("*.[ch]*")))
    identity = "\n".join([*sources, compiler, *OPTIONS, _processor()])
    path = cache_dir() / f"convolution-{hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / path.name
            command = [compiler, *OPTIONS, "-o", str(made), str(SOURCE)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode != 0:
                complaint = next(iter(done.stderr.splitlines()), f"exit code {done.returncode}")
                raise FedadeError(f"{compiler} cannot compile {SOURCE.name} ({complaint}); set {SWITCH}=0")
            storage.write_bytes(path, made.read_bytes())
    return path


def _processor() -> str:
    """What instructions there are: a cache folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.node()}"
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())
