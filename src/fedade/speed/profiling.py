"""Where the time goes."""

from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from fedade.speed.contenders import Contender

SHOWN = 15


@dataclass(frozen=True)
class TimeShare:
    """One operation's part in the time."""

    operation: str
    share: float
    milliseconds: float
    calls: int


def profiled(contender: Contender, device: str) -> tuple[TimeShare, ...]:
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
    longest = sorted(events, key=lambda event: -event[1])[:SHOWN]
    return tuple(TimeShare(name, time / total, time / 1000, calls) for name, time, calls in longest)
