"""What is gained on a CPU against PyTorch, in its usual layout and in channels-last: `python speed/cpu.py --out FILE`.

Seconds are those of one core's work (`time.process_time`), so that other work on the machine counts little. Contenders
take turns, and each one's best counts. A timestep of `fed-ade-plus`, which scores and adapts, is held against two plain
passes of the same batches; each in a process of its own, since our library changes how a process keeps freed memory,
from which plain PyTorch gains too.
"""

import argparse
import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedade.client_map import loop
from fedade.core.seeds import Seeds
from fedade.engine.clock import Clock
from fedade.engine.steps import Maps
from fedade.kernels import Layer
from fedade.kernels.native import chain
from fedade.kernels.native.calls import by_pixel
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.speed.plain_loop import plain_model
from fedade.speed.workload import Work, random_scenario

SHAPES = ((32, 32, 32, 3, 1), (64, 64, 16, 3, 1), (128, 128, 8, 3, 1), (32, 64, 32, 3, 2), (32, 64, 32, 1, 2))
"""Inputs, outputs, height and width, window, stride, as in `resnet-3block`; of 50 images."""
CLIENTS = 6


def milliseconds(function: Callable[[], object]) -> float:
    """Of one core's work."""
    begun = time.process_time()
    function()
    return 1000 * (time.process_time() - begun)


def in_turns(contenders: Sequence[Callable[[], object]], turns: int) -> list[float]:
    """The best of each."""
    found = [[milliseconds(one) for one in contenders] for _ in range(turns)]
    return [min(times) for times in zip(*found, strict=True)]


def convolution(shape: tuple[int, ...]) -> list[dict[str, object]]:
    """A convolution alone and with its gradients, by `kernels/native` and by PyTorch."""
    inputs, outputs, side, size, stride = shape
    images, weight = torch.randn(50, inputs, side, side), torch.randn(outputs, inputs, size, size) / side
    bias, layers = torch.zeros(outputs), [Layer(0, stride, relu=False)]

    def ours(images: Tensor, weight: Tensor) -> Tensor:
        return chain.fused_layers(layers, [images], [weight], [bias])

    def theirs(images: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(images, weight, bias, stride, size // 2)

    def there_and_back(run: Callable[[Tensor, Tensor], Tensor], *given: Tensor) -> None:
        run(*(value.detach().requires_grad_() for value in given)).sum().backward()

    given = ((ours, by_pixel(images), weight), (theirs, images, weight), (theirs, by_pixel(images), by_pixel(weight)))
    with torch.no_grad():
        forward = in_turns([lambda run=run, own=own: run(*own) for run, *own in given], 12)
    both = in_turns([lambda run=run, own=own: there_and_back(run, *own) for run, *own in given], 8)
    name = f"{size}x{size}, stride {stride}, {inputs} to {outputs} channels, {side}x{side}"
    return [row(f"{name}, {what}", *times) for what, times in (("forward", forward), ("with gradients", both))]


def row(work: str, ours: float, plain: float, channels_last: float) -> dict[str, object]:
    """A line of the table."""
    return {
        "work": work,
        "ours_ms": round(ours, 2),
        "pytorch_ms": round(plain, 2),
        "pytorch_channels_last_ms": round(channels_last, 2),
        "faster": round(min(plain, channels_last) / ours, 2),
    }


def timestep(contender: str, model: str) -> float:
    """Milliseconds of one client's batch of 50: a timestep of `fed-ade-plus`, or two plain passes."""
    work = Work(clients=CLIENTS, participants=2, rounds=1, timesteps=6, model=model)
    scenario = random_scenario(work, "cpu")
    if contender == "ours":
        clock = Clock(FedAdePlus(), scenario, work.exchange_rounds, Seeds(0), Maps(loop, loop))
        running = clock.advance(clock.beginning())
        return min(milliseconds(lambda: next(running)) for _ in range(work.timesteps)) / CLIENTS
    layout = torch.channels_last if contender == "channels-last" else torch.contiguous_format
    plain = plain_model(scenario.deployment).to(memory_format=layout)
    batches = [one.contiguous(memory_format=layout) for one in scenario.streams.draw(np.arange(CLIENTS), 1).inputs]
    with torch.no_grad():
        return min(milliseconds(lambda: [plain(one) for one in batches * 2]) for _ in range(6)) / CLIENTS


def apart(contender: str, model: str) -> float:
    """The same in a process of its own."""
    words = [sys.executable, __file__, "--one", contender, "--models", model]
    done = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603 - this file itself
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure everything, or one contender."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--models", nargs="+", default=["resnet-3block"])
    parser.add_argument("--turns", type=int, default=2, help="of the whole timesteps, each in a process of its own")
    parser.add_argument("--one", choices=("ours", "plain", "channels-last"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.one:
        print(timestep(options.one, options.models[0]))
        return
    here = Path(__file__).resolve().parent.parent
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
    with options.out.open("w", buffering=1) if options.out else os.fdopen(1, "w", closefd=False) as written:
        lines = csv.DictWriter(
            written, ("work", "ours_ms", "pytorch_ms", "pytorch_channels_last_ms", "faster"), lineterminator="\n"
        )
        lines.writeheader()
        for model in options.models:
            found = [[apart(one, model) for one in ("ours", "plain", "channels-last")] for _ in range(options.turns)]
            name = model.rpartition(":")[2]
            lines.writerow(row(f"fed-ade-plus against two passes, {name}", *map(min, zip(*found, strict=True))))
        for shape in SHAPES:
            lines.writerows(convolution(shape))


if __name__ == "__main__":
    main()
