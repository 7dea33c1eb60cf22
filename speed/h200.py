"""What federations of the paper's size take on one GPU, figure by figure: `python speed/h200.py --out FILE.csv`.

100 clients, 10 participants, 10 rounds and 50 samples on random images, so that no dataset is needed. Every figure is
timed in a process of its own with a limit, so that one that fails costs the others nothing. Kernels are compiled
beforehand, since that is work of the first moments; `cold` alone begins with an empty cache.

python speed/h200.py --only fed-ade-resnet20 --profile    # and which kernels its steps consist of
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from fedade.client_map import Vectorised, loop
from fedade.core.precision import set_multiplication
from fedade.core.seeds import Seeds
from fedade.engine.clock import Clock, Federation
from fedade.engine.execution import Captured
from fedade.engine.steps import Maps
from fedade.kernels import compile_side_by_side
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.models.traced import fused_and_other_layers
from fedade.speed.contenders import simulated_costs, unit_costs
from fedade.speed.stopwatch import flops_per_second, seconds_of
from fedade.speed.workload import Work, random_scenario

BEGUN = time.perf_counter()
STARTED = "FEDADE_STARTED"
"""When the process of a figure was started, in its environment."""
PIXELS_AT_ONCE = 32_000_000
"""Of one pass, as in a run."""
COLUMNS = (
    "figure", "model", "fused", "method", "precision", "federations", "timesteps", "first_timestep", "second_timestep",
    "milliseconds", "seconds_of_100", "goal", "tera_flops", "share", "ceiling", "gigabytes", "not_recorded", "failure",
    "command",
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A federation, or several at once, for so many timesteps."""

    goal: float | None
    """Seconds for 100 timesteps; of `cold`, for the first."""
    model: str = "resnet-3block"
    method: str = "fed-ade"
    precision: str = "bf16"
    timesteps: int = 100
    federations: int = 1
    limit: int = 240
    work: dict[str, Any] = field(default_factory=dict)


RESNET_20, RESNET_56 = "import:speed.networks:resnet20", "import:speed.networks:resnet56"
FIGURES = {
    "cold": Figure(8, timesteps=3),
    "fed-ade": Figure(3),
    "fed-ade-resnet20": Figure(5, RESNET_20),
    "fed-ade-resnet56": Figure(12, RESNET_56),
    "plus": Figure(1.5, method="fed-ade-plus"),
    "plus-20": Figure(15, method="fed-ade-plus", federations=20),
    "plus-resnet20": Figure(2, RESNET_20, "fed-ade-plus"),
    "plus-resnet56": Figure(5, RESNET_56, "fed-ade-plus"),
    "vit": Figure(None, "import:speed.networks:vit_tiny"),
    "resnet18": Figure(60, "resnet18", work={"samples": 100, "input_shape": (3, 64, 64), "num_classes": 200}),
    "risk-20": Figure(40, federations=20, work={"objective": "bbse", "reference_draws": "prior"}),
    "plus-float32": Figure(None, method="fed-ade-plus", precision="float32"),
    "fed-ade-float32": Figure(12, precision="float32"),
    "fed-ade-20": Figure(45, federations=20),
}


COLD = "cold"
"""Seconds since the process began, with an empty cache of kernels."""


def clock_of(figure: Figure) -> tuple[Clock, Work]:
    """Its federations, captured, and the work that they do."""
    set_multiplication(figure.precision)
    work = Work(timesteps=figure.timesteps, model=figure.model, **figure.work)
    scenario = random_scenario(work, "cuda")
    scenario = replace(scenario, deployment=scenario.deployment.computing_in(figure.precision))
    pixels = work.input_shape[1] * work.input_shape[2]
    clients = Vectorised(max(1, PIXELS_AT_ONCE // (figure.federations * work.samples * pixels)))
    maps = Maps(clients, clients, Vectorised() if figure.federations > 1 else loop)
    method = FedAdePlus() if figure.method == "fed-ade-plus" else work.method
    further = tuple(Federation(scenario, Seeds(seed)) for seed in range(1, figure.federations))
    clock = Clock(
        method,
        scenario,
        work.exchange_rounds,
        Seeds(0),
        maps,
        more_federations=further,
        execution=Captured(compile_side_by_side),
    )
    return clock, work


def timed(name: str, timesteps: int | None, profiled: bool) -> dict[str, Any]:
    """A figure, measured in this process."""
    figure = FIGURES[name]
    figure = replace(figure, timesteps=timesteps or figure.timesteps)
    heard: list[str] = []
    warnings.showwarning = lambda message, *_words, **_more: heard.append(str(message))
    clock, work = clock_of(figure)
    fused, others = fused_and_other_layers(clock.scenario.deployment.network.body)
    running = clock.advance(clock.beginning())
    first = seconds_of(lambda: next(running), "cuda")
    since_start = time.time() - float(os.environ.get(STARTED, time.time()))
    found = {
        "model": figure.model.rpartition(":")[2],
        "method": figure.method,
        "precision": figure.precision,
        "federations": figure.federations,
        "timesteps": figure.timesteps,
        "goal": figure.goal,
        "fused": f"{len(fused)} of {len(fused) + len(others)}",
        "first_timestep": round(since_start if name == COLD else first, 2),
        "not_recorded": "; ".join(dict.fromkeys(one for one in heard if "CUDA graph" in one)),
    }
    if figure.timesteps == 1:
        return found
    second, rest = seconds_of(lambda: next(running), "cuda"), figure.timesteps - 2
    each = seconds_of(lambda: list(islice(running, rest)), "cuda") / max(1, rest)
    found |= {
        "second_timestep": round(second, 2),
        "milliseconds": round(1000 * each, 2),
        "seconds_of_100": round(first + second + 98 * each, 2),
        "gigabytes": round(torch.cuda.max_memory_allocated() / 1e9, 1),
        "not_recorded": "; ".join(dict.fromkeys(one for one in heard if "CUDA graph" in one)),
    }
    ceiling = flops_per_second("cuda", figure.precision)
    found["ceiling"] = round(ceiling / 1e12)
    if figure.method == "fed-ade" and "objective" not in figure.work:
        found |= _rate(figure, work, each, ceiling)
    if profiled:
        _profile(figure)
    return found


def _rate(figure: Figure, work: Work, seconds: float, ceiling: float) -> dict[str, Any]:
    """Products per second, and their share of what a large product reaches."""
    one, once = simulated_costs(work, unit_costs(work))
    rate = figure.federations * (work.rounds * one + once).flops / seconds
    return {"tera_flops": round(rate / 1e12, 1), "share": round(rate / ceiling, 3)}


def _profile(figure: Figure) -> None:
    """Print the kernels of two replayed timesteps."""
    clock, _ = clock_of(replace(figure, timesteps=5))
    running = clock.advance(clock.beginning())
    list(islice(running, 3))
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        list(islice(running, 2))
        torch.cuda.synchronize()
    events = sorted(watched.key_averages(), key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events)
    print(f"profile of two timesteps: {total / 1e3:.2f} ms, {sum(event.count for event in events)} kernels")
    for event in events[:28]:
        share = event.self_device_time_total / total
        print(f"{share:6.1%} {event.self_device_time_total / 1e3:9.3f} ms {event.count:6d} x {event.key[:110]}")


def run_one(name: str, options: argparse.Namespace, seconds: float, timesteps: int | None = None) -> dict[str, Any]:
    """A figure, measured in a process of its own."""
    words = [sys.executable, __file__, "--one", name]
    words += ["--timesteps", str(timesteps)] if timesteps else []
    words += ["--profile"] if options.profile and not timesteps else []
    try:
        done = subprocess.run(  # noqa: S603 - this file itself
            words,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=os.environ | {STARTED: str(time.time())},
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"not done after {seconds:.0f} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        print(done.stderr[-3000:], flush=True)
        return {"failure": (done.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    print("\n".join(lines[:-1]), flush=True)
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def compile_all(names: list[str], seconds: float) -> None:
    """Compile the kernels of all figures, side by side; who fails here says so when it is timed."""
    words = [[sys.executable, __file__, "--one", name, "--timesteps", "1"] for name in names]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [subprocess.Popen(each, **quiet) for each in words]  # noqa: S603 - this file itself
    end = time.perf_counter() + seconds
    for process in running:
        try:
            process.wait(max(0.1, end - time.perf_counter()))
        except subprocess.TimeoutExpired:
            process.kill()


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=list(FIGURES))
    parser.add_argument("--budget", type=float, default=600.0, help="seconds, in all")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--one", choices=FIGURES, help=argparse.SUPPRESS)
    parser.add_argument("--timesteps", type=int)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(timed(options.one, options.timesteps, options.profile)))
        return
    here = Path(__file__).resolve().parent.parent
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here), str(here / "src"), os.environ.get("PYTHONPATH", "")])
    cache = os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp())
    # As after an installation by pip, modules are compiled before: else seconds go to that.
    os.environ.setdefault("PYTHONPYCACHEPREFIX", tempfile.mkdtemp())
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    modules = "import triton.compiler, fedade.kernels.lanes, fedade.kernels.folding_lanes, speed.h200, speed.networks"
    subprocess.run([sys.executable, "-c", modules], check=False)  # noqa: S603 - as above
    written = options.out.open("w", buffering=1) if options.out else sys.stdout
    rows = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    rows.writeheader()
    names = list(options.only)
    cold = [name for name in names if name == COLD]
    names = [name for name in names if name != COLD]

    def left() -> float:
        return options.budget - (time.perf_counter() - BEGUN)

    for name in [*cold, None, *names]:
        if name is None:
            os.environ["TRITON_CACHE_DIR"] = cache
            compile_all([each for each in names if FIGURES[each].federations == 1], min(75.0, left()))
            print(f"compiled, {left():.0f} s left", flush=True)
            continue
        if left() < 10:
            found: dict[str, Any] = {"failure": "no time left"}
        else:
            os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp() if name == COLD else cache
            found = run_one(name, options, min(FIGURES[name].limit, left()))
        print(f"{name}: {found}; {left():.0f} s left", flush=True)
        rows.writerow({"figure": name, "command": f"python speed/h200.py --only {name}", **found})


if __name__ == "__main__":
    main()
