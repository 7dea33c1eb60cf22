"""A second stream that was given no work is not waited for: recordings refuse what is no part of them."""

from contextlib import nullcontext

import pytest
import torch

from fedade.kernels import second_stream
from fedade.kernels.second_stream import SecondStream


class Stream:
    """Takes the place of a CUDA stream."""

    device = torch.device("cuda")

    def __init__(self) -> None:
        self.waited_for: list[Stream] = []

    def wait_stream(self, other: "Stream") -> None:
        self.waited_for.append(other)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> tuple[Stream, Stream]:
    current, second = Stream(), Stream()
    monkeypatch.setattr(second_stream, "_second_stream", lambda _device: second)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: current)
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: nullcontext())
    return current, second


def test_work_on_it_is_waited_for_both_ways(streams: tuple[Stream, Stream]) -> None:
    current, second = streams
    after_work(torch.device("cuda"))
    assert second.waited_for == [current]
    assert current.waited_for == [second]


def test_without_work_nobody_waits(streams: tuple[Stream, Stream]) -> None:
    current, second = streams
    after_work(torch.device("cuda")).join()
    SecondStream(torch.device("cuda")).join()
    assert current.waited_for == [second]


def after_work(device: torch.device) -> SecondStream:
    beside = SecondStream(device)
    with beside.reading(torch.zeros(1)):
        pass
    beside.join()
    return beside
