"""Seconds and memory of a function on a device."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch

KIBI = 1024


def seconds_of(function: Callable[[], object], device: str) -> float:
    """Wall-clock seconds, until the device has finished."""
    _finish(device)
    begun = time.perf_counter()
    function()
    _finish(device)
    return time.perf_counter() - begun


def best_of(times: int, function: Callable[[], object], device: str) -> float:
    """The shortest of several: other work on the machine only ever adds."""
    return min(seconds_of(function, device) for _ in range(times))


def forget_peak(device: str) -> None:
    """Begin to watch the peak of memory anew."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")  # Linux: resets the process's high-water mark
    except OSError:
        return


def peak_memory(device: str) -> int:
    """Bytes at the highest point since: of the device's tensors, or of the whole process on a CPU."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated()
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBI
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * KIBI


def _finish(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
