"""How a run's steps are executed."""

from typing import Any

import pytest
import torch

from fedade.engine import execution
from fedade.engine.execution import MOST_RECORDINGS, _Graph, _Recorded


class Rows:
    """In place of a CUDA graph: remembers for how many rows it was replayed."""

    def __init__(self, rows: int, replayed: list[int]) -> None:
        self.rows, self.replayed = rows, replayed

    def replay(self) -> None:
        self.replayed.append(self.rows)


def test_recordings_of_shapes_that_are_not_met_any_more_are_dropped(monkeypatch):
    """Each has memory of its own, and clients that join one after the other make a new shape every other timestep."""
    replayed: list[int] = []

    def record(_recorded: _Recorded, flat: list[torch.Tensor], _structure: object) -> _Graph:
        graph: Any = Rows(len(flat[0]), replayed)
        return _Graph(graph, [leaf.clone() for leaf in flat], flat[0].clone(), [None] * len(flat))

    monkeypatch.setattr(execution._Recorded, "_record", record)
    step = _Recorded(lambda values: values, set())
    most = MOST_RECORDINGS + 2
    for rows in [*range(1, most + 1), 1]:
        for _ in range(3):
            step(torch.zeros(rows))
            assert sum(graph is not None for graph in step.graphs.values()) <= MOST_RECORDINGS
    # The first of a shape runs as it is, also of one whose recording is gone.
    assert replayed == [rows for rows in [*range(1, most + 1), 1] for _ in range(2)]


class BrokenRecording:
    """In place of `torch.cuda.graph`: ending a recording that has failed fails once more."""

    def __init__(self, *_words: object, **_more: object) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_error: object) -> None:
        raise RuntimeError("operation failed due to a previous error during capture")


def test_why_a_step_is_not_recorded_is_said_by_its_first_error(monkeypatch):
    recording: list[bool] = []

    def step(values: torch.Tensor) -> torch.Tensor:
        if recording:
            recording.clear()
            raise RuntimeError("work of another stream")
        return values + 1

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: recording.append(True))
    monkeypatch.setattr(torch.cuda, "graph", BrokenRecording)
    recorded = _Recorded(step, set())
    recorded(torch.zeros(1))
    with pytest.warns(RuntimeWarning, match="work of another stream"):
        assert recorded(torch.zeros(1)) == 1  # and it runs nevertheless
