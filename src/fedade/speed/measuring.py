"""Timing all contenders in one run, on the same work and the same device."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile

from fedade.core.precision import Precision
from fedade.core.provenance import provenance
from fedade.core.threads import set_threads
from fedade.speed.contenders import SEEDS, Contender, Cost, Simulated, contenders, unit_costs
from fedade.speed.stopwatch import bytes_per_second, flops_per_second, forget_peak, peak_memory, seconds_of
from fedade.speed.workload import Work, random_scenario

Progress = Callable[[str, int, int], None]
Unit = Literal["round", "timestep"]
Seconds = dict[Unit, float]
"""Of a timestep, and of a round where that was measured."""
OPERATIONS_SHOWN = 15


@dataclass(frozen=True)
class Timing:
    """What one contender needed."""

    name: str
    precision: Precision
    seconds_timestep: float
    """Measured on a GPU; on a CPU the sum of the parts, with as many rounds as the work has."""
    seconds_round: float | None
    """CPU only: one round with its participants' signals, which the simulator computes once per timestep."""
    speedup: float
    """Seconds of the plain loop over these, for the run's unit."""
    flops: float
    """Floating-point operations of a timestep."""
    flops_per_second: float
    flops_share: float
    """Share of the device's ceiling in this precision."""
    traffic: float
    """Bytes of a timestep, if every operation of the plain network reads its inputs and writes its outputs once."""
    bytes_per_second: float
    bytes_share: float
    """May exceed 1: caches and joined operations spare traffic."""
    peak_memory: int


@dataclass(frozen=True)
class TimeShare:
    """One operation's part in the time."""

    operation: str
    share: float
    milliseconds: float
    calls: int


@dataclass(frozen=True)
class Speed:
    """A whole comparison."""

    work: Work
    unit: Unit
    """What `seconds_reference` and `seconds_ours` are of."""
    seconds_reference: float
    seconds_ours: float
    speedup: float
    timings: tuple[Timing, ...]
    ceilings: dict[str, float]
    """Bytes per second, and floating-point operations per second of each precision."""
    provenance: dict[str, Any]
    profile: tuple[TimeShare, ...]

    def as_plain(self) -> dict[str, Any]:
        """What `--json` prints."""
        work = asdict(self.work) | {"rate": self.work.rate.model_dump()}
        return asdict(self) | {"work": work, "device": self.provenance["device"]}


def measure(
    work: Work,
    device: str,
    precisions: tuple[Precision, ...],
    repeats: int,
    with_profile: bool,
    report: Progress,
    compiled: bool = False,
    with_flower: bool = False,
) -> Speed:
    """Time all contenders in turn, several times, and keep each one's best: other work on the machine only adds."""
    scenario = random_scenario(work, device)
    set_threads(sum(value.numel() for value in scenario.deployment.parameters.values()))
    known = contenders(work, scenario, precisions, compiled)
    used = sorted({one.precision for one in known})
    ceilings: dict[str, float] = {name: flops_per_second(device, name) for name in used}
    ceilings["bytes"] = bytes_per_second(device)
    unit: Unit = "round" if device == "cpu" else "timestep"
    watch = _watch_pieces if unit == "round" else _watch_timesteps
    found: list[list[Seconds]] = [[] for _ in known]
    peaks = [0] * len(known)
    for turn in range(repeats):
        for place, contender in enumerate(known):
            report("timing", turn * len(known) + place, repeats * len(known))
            forget_peak(device)
            found[place].append(watch(contender, work, device, warm_up=turn == 0))
            peaks[place] = max(peaks[place], peak_memory(device))
    report("timing", repeats * len(known), repeats * len(known))
    best = [min(turns, key=lambda one: one[unit]) for turns in found]
    ours = [place for place, contender in enumerate(known) if isinstance(contender, Simulated)]
    fastest = min(ours, key=lambda place: best[place][unit])
    if with_flower:  # the plain loop's clients
        known.append(replace(known[0], name="Flower's simulation"))
        best.append(_watch_flower(work, device))
        peaks.append(peak_memory(device))
    costs, reference = unit_costs(work), best[0][unit]
    timings = []
    for contender, seconds, peak in zip(known, best, peaks, strict=True):
        one, once = contender.costs(costs)
        cost = work.rounds * one + once
        timings.append(_timing(contender, seconds, reference / seconds[unit], cost, ceilings, peak))
    return Speed(
        work=work,
        unit=unit,
        seconds_reference=reference,
        seconds_ours=best[fastest][unit],
        speedup=timings[fastest].speedup,
        timings=tuple(timings),
        ceilings=ceilings,
        provenance=provenance(device),
        profile=_profiled(known[fastest], device) if with_profile else (),
    )


def _watch_timesteps(contender: Contender, work: Work, device: str, warm_up: bool) -> Seconds:
    run = contender.timesteps()
    if warm_up:
        run()
    return {"timestep": seconds_of(run, device) / (work.timesteps * contender.federations)}


def _watch_pieces(contender: Contender, work: Work, device: str, warm_up: bool) -> Seconds:
    pieces = contender.pieces()
    if warm_up:
        pieces.round()
    one, score = seconds_of(pieces.round, device), seconds_of(pieces.score, device)
    observe = seconds_of(pieces.observe, device) if pieces.observe else 0.0
    # The plain loop's round holds its participants' signals: ours is charged for as many.
    share = observe * work.participants / work.clients
    return {"timestep": work.rounds * one + observe + score, "round": one + share}


def _watch_flower(work: Work, device: str) -> Seconds:
    from fedade.speed.flower_loop import simulated_by_flower  # noqa: PLC0415 - Flower is an extra

    run = simulated_by_flower(replace(work, timesteps=2), device, SEEDS)
    one = min(run.rounds[1:])
    return {"timestep": work.rounds * one + min(run.scores), "round": one}


def _timing(
    contender: Contender, seconds: Seconds, speedup: float, cost: Cost, ceilings: dict[str, float], peak: int
) -> Timing:
    flops, traffic = cost.flops / seconds["timestep"], cost.traffic / seconds["timestep"]
    return Timing(
        name=contender.name,
        precision=contender.precision,
        seconds_timestep=seconds["timestep"],
        seconds_round=seconds.get("round"),
        speedup=speedup,
        flops=cost.flops,
        flops_per_second=flops,
        flops_share=flops / ceilings[contender.precision],
        traffic=cost.traffic,
        bytes_per_second=traffic,
        bytes_share=traffic / ceilings["bytes"],
        peak_memory=peak,
    )


def _profiled(contender: Contender, device: str) -> tuple[TimeShare, ...]:
    """The operations that take longest, by time in themselves: of a round on one CPU core, of timesteps on a GPU."""
    threads = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(1)  # the profiler sees one thread
    try:
        run = contender.pieces().round if device == "cpu" else contender.timesteps()
        run()
        with profile(activities=[ProfilerActivity.CPU if device == "cpu" else ProfilerActivity.CUDA]) as watched:
            run()
    finally:
        torch.set_num_threads(threads)
    events = [
        (event.key, event.self_cpu_time_total if device == "cpu" else event.self_device_time_total, event.count)
        for event in watched.key_averages()
    ]
    total = sum(time for _, time, _ in events) or 1.0
    longest = sorted(events, key=lambda event: -event[1])[:OPERATIONS_SHOWN]
    return tuple(TimeShare(name, time / total, time / 1000, calls) for name, time, calls in longest)
