"""A timestep on a GPU, and what its captured steps take.

python speed/captured.py                        # the rows of docs/performance.md
python speed/captured.py --work tiny-imagenet   # ResNet-18 on 64x64 images, bf16, with its share of the ceiling

For objectives and numbers of federations that `fedade speed` does not compare with the plain loop.
"""

import argparse
from dataclasses import replace
from itertools import islice

import torch
from torch.profiler import ProfilerActivity, profile

from fedade.client_map import Vectorised, loop
from fedade.core.precision import Precision, set_multiplication
from fedade.core.seeds import Seeds
from fedade.engine.clock import Clock, Federation
from fedade.engine.execution import Captured
from fedade.engine.steps import Maps, Steps
from fedade.speed.ceilings import flops_per_second
from fedade.speed.counting import simulated_costs, unit_costs
from fedade.speed.stopwatch import seconds_of
from fedade.speed.workload import WORKS, Work, random_scenario

STEPS = ("score", "observe", "exchange")


def clock_of(work: Work, precision: Precision) -> Clock:
    """The federations of a work, captured."""
    set_multiplication(precision)
    scenario = random_scenario(work, "cuda")
    scenario = replace(scenario, deployment=scenario.deployment.computing_in(precision))
    maps = Maps(Vectorised(), Vectorised(), Vectorised() if work.federations > 1 else loop)
    further = tuple(Federation(scenario, Seeds(seed)) for seed in range(1, work.federations))
    return Clock(
        work.method, scenario, work.exchange_rounds, Seeds(0), maps, more_federations=further, execution=Captured()
    )


def milliseconds(function, times: int) -> float:
    """Mean milliseconds of a call, until the device has finished."""
    return 1000 * seconds_of(lambda: [function() for _ in range(times)], "cuda") / times


def measure(work: Work, precision: Precision, profiled: bool) -> None:
    """Print a line for the timestep and one for its steps."""
    clock = clock_of(work, precision)
    running = clock.advance(clock.beginning())
    first = seconds_of(lambda: list(islice(running, 2)), "cuda")
    whole = milliseconds(lambda: next(running), work.timesteps - 2)
    print(
        f"{work.objective}, {precision}, {work.federations} federation(s): {whole:.1f} ms a timestep; "
        f"first two {first:.1f} s, {torch.cuda.max_memory_allocated() / 1e9:.1f} GB{_share(work, precision, whole)}",
        flush=True,
    )
    steps, world = Steps(clock.method, clock.scenario.deployment, clock.maps), clock.beginning()
    captured = clock.execution.begin(steps)
    with torch.no_grad():
        for timestep in (1, 2):
            clock._step(captured, steps, world, timestep)
    for name in STEPS:
        graph = next(one for one in getattr(captured, name).graphs.values() if one is not None).graph
        print(f"  {name}: {milliseconds(graph.replay, 20):.2f} ms", flush=True)
        if profiled:
            with profile(activities=[ProfilerActivity.CUDA]) as watched:
                graph.replay()
                torch.cuda.synchronize()
            print(watched.key_averages().table(sort_by="cuda_time_total", row_limit=40, max_name_column_width=90))


def _share(work: Work, precision: Precision, milliseconds_taken: float) -> str:
    """Share of the device's measured ceiling, where costs are known."""
    if work.objective != "entropy":
        return ""
    one, once = simulated_costs(work, unit_costs(work))
    rate = work.federations * (work.rounds * one + once).flops / milliseconds_taken * 1e3
    ceiling = flops_per_second("cuda", precision)
    return f"; {rate / 1e12:.0f} TFLOP/s, {rate / ceiling:.0%} of {ceiling / 1e12:.0f}"


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--federations", type=int, default=4)
    parser.add_argument("--work", choices=WORKS, default="cifar10")
    options = parser.parse_args()
    work = replace(WORKS[options.work], timesteps=10)
    if options.work != "cifar10":
        measure(replace(work, timesteps=4), "bf16", options.profile)
        return
    for precision in ("bf16", "float32"):
        measure(work, precision, options.profile)
    measure(replace(work, objective="bbse"), "bf16", options.profile)
    for objective in ("entropy", "bbse"):
        measure(replace(work, objective=objective, federations=options.federations), "bf16", options.profile)


if __name__ == "__main__":
    main()
