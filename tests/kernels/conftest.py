"""The kernels' own tests run them in Triton's interpreter, on a CPU, where Triton is installed."""

import importlib
import importlib.util
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from types import ModuleType
from typing import Any

import pytest
import torch


def interpreter() -> ModuleType | None:
    """Triton's, where kernels run in it."""
    if importlib.util.find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
        return None
    return importlib.import_module("triton.runtime.interpreter")


@pytest.fixture(scope="session", autouse=True)
def faster_interpreter() -> Iterator[None]:
    """Half the time of all kernels. The interpreter looks through the whole of `triton.language` at every launch and
    every call between functions, for what it has to replace: here once. And a thread of its own has a short stack:
    Python 3.11 maps and frees 16 kB at every call where a deep one happens to end at such a boundary."""
    running = interpreter()
    if running is None:
        yield
        return
    replaced: set[int] = set()
    launch, replace = running.GridExecutor.__call__, running._patch_lang

    class Kept:
        def restore(self) -> None: ...

    def replace_once(function: Any) -> Kept:
        languages = {id(value) for value in function.__globals__.values() if value in (running.tl, running.tl.core)}
        if not languages <= replaced:
            replace(function)
            replaced.update(languages)
        return Kept()

    @wraps(launch)
    def in_a_thread(*given: Any, **named: Any) -> None:
        with torch.no_grad():
            launch(*given, **named)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as thread:
        patch.setattr(running, "_patch_lang", replace_once)
        patch.setattr(
            running.GridExecutor,
            "__call__",
            lambda *given, **named: thread.submit(in_a_thread, *given, **named).result(),
        )
        yield


@pytest.fixture(scope="session")
def lanes() -> ModuleType:
    """The module with the kernels, as the interpreter runs them."""
    if interpreter() is None:
        pytest.skip("needs Triton and its interpreter")
    launch = importlib.import_module("fedade.kernels.launch")
    # The interpreter knows no splitting of float32: its products are exact.
    for table in (launch.FORWARD_PRECISION, launch.GRADIENT_PRECISION):
        table["float32"] = "ieee"
    return importlib.import_module("fedade.kernels.lanes")
