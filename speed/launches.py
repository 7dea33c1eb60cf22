"""How many kernels a timestep launches on a GPU, counted without one: `python speed/launches.py --methods tent`.

Clients are mapped, and kernels of ours are not run but counted. PyTorch's operations, below `vmap`, are run on a CPU;
those that only say otherwise how memory is read launch nothing. `--lines` says where in our code they come from,
`--bytes` counts what they read and write instead: every tensor that goes in or comes out, once.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import fedade
from fedade import kernels
from fedade.client_map import Vectorised, loop
from fedade.core.seeds import Seeds
from fedade.engine.clock import Clock
from fedade.engine.steps import Maps
from fedade.experiments.settings import build_method
from fedade.kernels import compiling
from fedade.speed.workload import Work, random_scenario

PACKAGE = Path(fedade.__file__).parent
WITHOUT_KERNEL = ("empty", "new_empty", "detach", "alias", "squeeze_", "_unsafe_view", "lift_fresh")
"""Operations, beside views, that launch nothing."""
ONLY_HERE = ("room",)
"""Functions of ours that launch something only where kernels are not run."""


def source() -> str:
    """The line of our code that is being run: its innermost one."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if frame.f_code.co_name in ONLY_HERE:
            return ""
        if path.is_relative_to(PACKAGE):
            return f"{path.relative_to(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


def size(*values: Any) -> int:
    """Bytes of the tensors among them."""
    tensors = [value for value in pytree.tree_leaves(values) if isinstance(value, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class Counting(TorchDispatchMode):
    """Counts what would be launched, and the bytes that it would read and write, by line and name."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, moved: int) -> None:
        line = source()
        if line:
            self.launches[line, name] += 1
            self.bytes[line, name] += moved

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        number = name == "_to_copy" and isinstance(args[0], int | float)  # which the host converts
        result = func(*args, **(kwargs or {}))
        if not func.is_view and not name.startswith(WITHOUT_KERNEL) and not number:
            self.add(name, size(args, kwargs, result))
        return result


@contextmanager
def counting() -> Iterator[Counting]:
    """Counts what is launched within, where kernels of ours leave zeros."""
    counts = Counting()

    def launch(_compiler: object, kernel: Any, _programs: object, *arguments: Any, **_constants: Any) -> None:
        counts.add(kernel.__name__, size(arguments))

    with (
        patch.object(kernels, "_runs_triton", lambda _tensor: True),
        patch.object(compiling.Compiler, "launch", launch),
        compiling.instead_of_running(),
        counts,
    ):
        yield counts


def launches(model: str, clients: int = 8, method: str = "fed-ade-plus", size: int = 16) -> Counting:
    """Of one timestep with one round and images of some size."""
    work = Work(
        clients=clients, participants=2, rounds=1, timesteps=3, samples=20, model=model, input_shape=(3, size, size)
    )
    scenario = random_scenario(work, "cpu")
    scenario = replace(scenario, deployment=scenario.deployment.computing_in("bf16"))
    maps = Maps(Vectorised(), Vectorised(), loop)
    clock = Clock(build_method(method, {}), scenario, work.exchange_rounds, Seeds(0), maps)
    running = clock.advance(clock.beginning())
    next(running)
    with counting() as counts:
        next(running)
    return counts


def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet-3block", "import:speed.networks:resnet20"])
    parser.add_argument("--methods", nargs="+", default=["fed-ade-plus"])
    parser.add_argument("--size", type=int, default=16, help="pixels of an image along each side")
    parser.add_argument("--lines", action="store_true", help="by line of our code")
    parser.add_argument("--bytes", action="store_true", help="megabytes that are read and written, not launches")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    torch.set_num_threads(1)
    for model, method in product(options.models, options.methods):
        counts = launches(model, method=method, size=options.size)
        found = counts.bytes if options.bytes else counts.launches
        unit, name_of_unit = (1_000_000, "MB") if options.bytes else (1, "launches")
        print(f"{method}, {model.rpartition(':')[2]}: {found.total() // unit} {name_of_unit}", flush=True)
        by_line: dict[str, Counter[str]] = {}
        for (line, name), count in found.items():
            by_line.setdefault(line, Counter())[name] += count
        ordered = sorted(by_line.items(), key=lambda pair: -pair[1].total())
        for line, names in ordered if options.lines else ():
            of_names = ", ".join(f"{name} {count // unit}" for name, count in names.most_common())
            print(f"{names.total() // unit:6d}  {line}  {of_names}")


if __name__ == "__main__":
    main()
