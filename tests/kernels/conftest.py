"""The kernels' own tests run them in Triton's interpreter, on a CPU, where Triton is installed."""

import importlib
import importlib.util
import os
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def lanes() -> ModuleType:
    """The module with the kernels, as the interpreter runs them."""
    if importlib.util.find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs Triton and its interpreter")
    launch = importlib.import_module("fedade.kernels.launch")
    # The interpreter knows no splitting of float32: its products are exact.
    for table in (launch.FORWARD_PRECISION, launch.GRADIENT_PRECISION):
        table["float32"] = "ieee"
    return importlib.import_module("fedade.kernels.lanes")
