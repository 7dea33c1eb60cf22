"""Seconds and memory of a function on a device, and what the device can do at best."""

import resource
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from fedade.core.precision import Precision, set_multiplication

KIBI = 1024
SIDE = {"cpu": 2048, "cuda": 8192}
"""Side of the square matrices: big enough for the best rate, small enough to take a moment."""
COPIED = {"cpu": 2**28, "cuda": 2**31}
"""Bytes: far more than any cache."""

TIMES = 6


def seconds_of(function: Callable[[], object], device: str) -> float:
    """Wall-clock seconds, until the device has finished."""
    _finish(device)
    begun = time.perf_counter()
    function()
    _finish(device)
    return time.perf_counter() - begun


def _best_of(function: Callable[[], object], device: str) -> float:
    """The shortest of several: other work on the machine only ever adds."""
    return min(seconds_of(function, device) for _ in range(TIMES))


def flops_per_second(device: str, precision: Precision) -> float:
    """Floating-point operations per second of a large matrix product."""
    side = SIDE[device.split(":")[0]]
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    if dtype is torch.bfloat16 and device == "cpu":
        side //= 8  # processors without such products would take minutes
    factor = torch.randn(side, side, device=device, dtype=dtype)  # equal numbers take less power, and run faster
    set_multiplication(precision)
    return 2 * side**3 / _best_of(lambda: factor @ factor, device)


def bytes_per_second(device: str) -> float:
    """Bytes read and written per second by a large copy."""
    source = torch.zeros(COPIED[device.split(":")[0]], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * len(source) / _best_of(lambda: target.copy_(source), device)


def forget_peak(device: str) -> None:
    """Begin to watch the peak of memory anew."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: resets the process's high-water mark


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
