"""Gradients do not import PyTorch's compiler, and whoever wants it still gets it."""

import subprocess
import sys

GRADIENTS = """
import sys
import torch
import fedade.client_map
from torch.func import grad, vjp, vmap

numbers = torch.arange(6.0).reshape(3, 2)
found = vmap(grad(lambda row: row.square().sum()))(numbers)
assert torch.equal(found, 2 * numbers)
assert torch.equal(vjp(torch.sin, numbers)[1](numbers)[0], numbers * numbers.cos())
assert "torch._dynamo" not in sys.modules
"""
AFTERWARDS = """
doubled = torch.compile(lambda value: 2 * value, backend="eager")
assert torch.equal(doubled(numbers), 2 * numbers)
assert torch._dynamo is sys.modules["torch._dynamo"]
assert torch.equal(vmap(grad(lambda row: row.square().sum()))(numbers), found)
"""
ASKED = """
assert callable(torch._dynamo.reset)
assert torch._dynamo is sys.modules["torch._dynamo"]
"""


def _run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_gradients_do_not_import_the_compiler() -> None:
    _run(GRADIENTS + AFTERWARDS)


def test_what_is_asked_of_the_compiler_imports_it() -> None:
    _run(GRADIENTS + ASKED)
