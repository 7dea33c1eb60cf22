"""Whatever ends a fleet's server or node at whatever operation on files, the table is the same and nothing is left."""

import os
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage

from fedade.core import storage, trace
from fedade.flower.client_app import client_app
from fedade.flower.server_app import adapt, serve
from fedade.flower.settings import CONFIG, FlowerTask

from ..runner.crash_points import KILLED, LEFT_BEHIND, crashing, every, some, survives
from .in_process import InProcessGrid, grid_of
from .traces import assert_same, simulated, told

VICTIM = "client-0001"


@pytest.fixture
def make_fleet(make_task, quick):
    """The task of two clients, whose turns all must count within so many seconds."""

    def make(seconds: float) -> FlowerTask:
        said = {"quorum": 1.0, "retries": 0, "timeout_seconds": seconds}
        return make_task(scenario={"num_clients": 2}, protocol={"participation": 1.0}, flower=said)

    return make


@pytest.fixture
def task(make_fleet) -> FlowerTask:
    """A client that cannot save its state soon ends the run."""
    return make_fleet(2.0)


def fleet_in(folder: Path, task: FlowerTask) -> InProcessGrid:
    """Clients that keep their states beside the run."""
    storage.write_yaml(folder.parent / "app" / CONFIG, task.as_plain())
    return grid_of(folder, client_app(folder.parent / "app", in_order=True), task.flower.clients)


def table(folder: Path) -> dict[str, list[object]]:
    """Numbers as the simulator's are compared: to rounding, of which a state that was read again has none."""
    found = trace.read(next((folder / "out").glob("cells/*/trace.parquet")))
    return {name: np.asarray(trace.column(found, name)).tolist() for name in found.column_names if name != "seconds"}


def check(task, place, full, chosen) -> None:
    """Server and clients are one process here: all of them end at once, as in a power cut."""

    def run(folder: Path) -> None:
        serve(task, fleet_in(folder, task), folder / "out")

    survives(run, lambda folder: repr(table(folder)), place, full, chosen)
    assert_same(told(task, place / "whole" / "out"), simulated(task, place / "simulator"))


@pytest.mark.usefixtures("without_reports")
def test_a_fleet_ends_the_same_whatever_operation_all_of_it_was_cut_off_at(task, tmp_path):
    check(task, tmp_path, False, some(stride=72))


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.usefixtures("without_reports")
def test_a_fleet_ends_the_same_after_a_power_cut_or_a_full_disk_at_every_operation(task, tmp_path, full):
    check(task, tmp_path, full, every)


class KilledNode(InProcessGrid):
    """A node of which a new process takes every turn, as after a kill; one of them ends at an operation on files."""

    states: Path
    at: int | None = None
    """Operations below the client's states until that one; None: it goes on."""
    seen = 0

    def _reply(self, message: Message) -> Message | None:
        if self.nodes[message.metadata.dst_node_id]["client"] != VICTIM:
            return super()._reply(message)
        ready, told_by = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ready)
            with crashing(self.states / VICTIM, self.at) as operations:
                reply = super()._reply(message)
            content = message_to_proto(reply).SerializeToString()
            with os.fdopen(told_by, "wb") as file:
                file.write(len(operations).to_bytes(4) + content)
            os._exit(0)
        os.close(told_by)
        with os.fdopen(ready, "rb") as file:
            content = file.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == KILLED:
            self.at = None
            return Message(Error(code=3, reason="killed"), reply_to=message)
        assert code == 0
        used = int.from_bytes(content[:4])
        self.seen, self.at = self.seen + used, None if self.at is None else self.at - used
        return message_from_proto(ProtoMessage.FromString(content[4:]))


@pytest.mark.parametrize(
    ("first", "stride"), [(4, 25), *(pytest.param(first, 5, marks=pytest.mark.slow) for first in range(5))]
)
def test_a_node_that_is_killed_at_any_operation_costs_no_number(make_fleet, tmp_path, first, stride):
    """A fifth of all operations on the client's files each, or one in 25 of them where there is little time."""
    task = make_fleet(300.0)

    def run(folder: Path, at: int | None) -> KilledNode:
        plain = fleet_in(folder, task)
        grid = KilledNode(plain.app, plain.nodes, plain.run_config)
        grid.states, grid.at = folder / "state", at
        adapt(task, grid, folder / "out")
        assert grid.at is None
        return grid

    whole = run(tmp_path / "whole", None)
    assert whole.seen > 40
    expected = table(tmp_path / "whole")
    for at in range(first, whole.seen, stride):
        folder = tmp_path / f"killed-{at}"
        run(folder, at)
        assert table(folder) == expected, at
        left = [path.name for path in folder.rglob("*") if LEFT_BEHIND.fullmatch(path.name)]
        assert left == [], at
