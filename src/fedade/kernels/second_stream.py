"""Work beside the current stream, so that small kernels fill what larger ones leave of a GPU."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor


class SecondStream:
    """A second stream of a CUDA device; on other devices, no more than the order of calls."""

    def __init__(self, device: torch.device) -> None:
        self._stream = _second_stream(device) if device.type == "cuda" else None
        self._read: list[Tensor] = []

    def reading(self, tensor: Tensor) -> AbstractContextManager[object]:
        """Work that begins when all that was launched so far is done, and reads a tensor."""
        if self._stream is None:
            return nullcontext()
        # Held until the streams meet again: the allocator would give its memory to kernels of the first stream.
        self._read.append(tensor)
        self._stream.wait_stream(torch.cuda.current_stream(tensor.device))
        return torch.cuda.stream(self._stream)

    def join(self) -> None:
        """Let the current stream wait for all that was launched on the second one."""
        if self._stream is not None and self._read:  # a recording must not wait for a stream that is no part of it
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
        self._read.clear()


@cache
def _second_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
