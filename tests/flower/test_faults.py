"""What happens when clients die, hang, come late or lose their disk; here without processes, so quickly."""

import errno
import os
import shutil

import numpy as np
import pytest
from flwr.app import Error, Message

from fedade.core import trace
from fedade.core.errors import FedadeError
from fedade.flower import exchange
from fedade.flower.overview import read_status
from fedade.flower.server_app import adapt
from fedade.flower.wire import TURN

from .hostile import node_of, turn_of
from .traces import assert_same, simulated, told


def test_a_client_that_is_killed_once_continues_where_it_was(make_task, make_grid, tmp_path):
    """Its answer is lost after the work is done; the work is done again from the same state."""
    task = make_task(flower={"quorum": 1.0})
    grid = make_grid(task)
    lost = {(node, turn) for node in grid.nodes for turn in (0, 1, 2)}

    def tamper(node, reply):
        turn = turn_of(grid.sent[-1]) if reply.metadata.message_type == TURN else None
        if (node, turn) in lost:
            lost.remove((node, turn))
            return Message(Error(code=3, reason="killed"), reply_to=grid.sent[-1])
        return reply

    grid.tamper = tamper
    adapt(task, grid, tmp_path / "out")
    assert len(lost) < 12
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_server_that_is_killed_continues_to_the_very_same_numbers(make_task, make_grid, tmp_path, kept):
    task = make_task(scenario={"num_timesteps": 3}, flower={"quorum": 1.0})
    grid = make_grid(task)

    class KilledError(Exception):
        pass

    def tamper(_node, reply):
        if reply.metadata.message_type == TURN and turn_of(grid.sent[-1]) == 2 * kept:
            raise KilledError
        return reply

    grid.tamper = tamper
    with pytest.raises(KilledError):
        adapt(task, grid, tmp_path / "out")
    assert read_status(tmp_path / "out")["timestep"] == kept
    grid.tamper = lambda _node, reply: reply
    adapt(task, grid, tmp_path / "out")
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


def test_a_hanging_client_does_not_stop_the_others(make_task, make_grid, tmp_path):
    task = make_task(methods=["tent"], flower={"timeout_seconds": 0.4, "quorum": 0.5})
    grid = make_grid(task)
    hanging = node_of(grid, "client-0003")
    grid.tamper = lambda node, reply: None if (node, reply.metadata.message_type) == (hanging, TURN) else reply
    adapt(task, grid, tmp_path / "out")
    found, expected = told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator")
    for client in (0, 1, 2):
        assert_same(trace.where(found, client=client), trace.where(expected, client=client))
    assert trace.column(trace.where(found, client=3), "n").tolist() == [0, 0]
    assert read_status(tmp_path / "out")["unanswered"] == 3


def test_a_turn_without_quorum_is_tried_again_and_then_ends_the_run(make_task, make_grid, tmp_path):
    task = make_task(methods=["tent"], flower={"timeout_seconds": 0.2, "retries": 2, "quorum": 0.75})
    grid = make_grid(task)
    silent = {node_of(grid, "client-0001"), node_of(grid, "client-0003")}
    grid.tamper = lambda node, reply: None if node in silent and reply.metadata.message_type == TURN else reply
    with pytest.raises(
        FedadeError, match=r"no quorum of 0.75 after 3 attempts; without answer: client-0001, client-0003"
    ):
        adapt(task, grid, tmp_path / "out")
    asked = [message for message in grid.sent if message.metadata.dst_node_id in silent]
    assert sum(message.metadata.message_type == TURN for message in asked) == 2 * 3


def test_a_late_client_takes_part_from_then_on(make_task, make_grid, tmp_path):
    task = make_task(methods=["tent"], scenario={"num_timesteps": 4}, flower={"min_clients": 3})
    grid = make_grid(task)
    late = node_of(grid, "client-0001")
    grid.online.remove(late)

    def tamper(_node, reply):
        if reply.metadata.message_type == TURN and turn_of(grid.sent[-1]) == 1:
            grid.online.add(late)
        return reply

    grid.tamper = tamper
    adapt(task, grid, tmp_path / "out")
    rows = trace.where(told(task, tmp_path / "out"), client=1)
    assert trace.column(rows, "n").tolist() == [0, 0, 0, 12]


def test_a_client_whose_disk_is_full_keeps_its_last_state_and_comes_back(make_task, make_grid, tmp_path, monkeypatch):
    task = make_task(methods=["tent"], scenario={"num_timesteps": 3}, flower={"timeout_seconds": 0.4, "quorum": 0.5})
    grid = make_grid(task)
    real_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
        if "client-0002" in target and "turn-00000001" in target:
            raise OSError(errno.ENOSPC, "No space left on device")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    adapt(task, grid, tmp_path / "out")
    rows = trace.where(told(task, tmp_path / "out"), client=2)
    assert trace.column(rows, "n").tolist() == [12, 0, 12]  # the second timestep could not be stored
    assert not list((tmp_path / "state" / "client-0002").rglob("*.tmp"))


def test_a_client_that_lost_its_disk_begins_afresh_and_says_so(make_task, make_grid, tmp_path, caplog):
    task = make_task(methods=["tent"])
    grid = make_grid(task)

    def tamper(_node, reply):
        if reply.metadata.message_type == TURN and turn_of(grid.sent[-1]) == 0:
            shutil.rmtree(tmp_path / "state" / "client-0000", ignore_errors=True)
        return reply

    grid.tamper = tamper
    adapt(task, grid, tmp_path / "out")
    assert "client-0000 lost its state" in caplog.text


def test_a_node_that_returns_under_another_id_is_the_same_client(make_task, make_grid, tmp_path):
    """As without node authentication: for a while the old id seems to be online, and never answers."""
    task = make_task(methods=["tent"], flower={"quorum": 1.0, "timeout_seconds": 2.0})
    grid = make_grid(task)
    old, new = node_of(grid, "client-0001"), 5000
    asked = {"times": 0}

    def tamper(node, reply):
        if reply.metadata.message_type == TURN and turn_of(grid.sent[-1]) == 1 and node == old:
            grid.nodes[new] = grid.nodes[old]
            grid.online.add(new)
            asked["times"] += 1
            if asked["times"] == 2:
                grid.online.remove(old)
            return None
        return reply

    grid.tamper = tamper
    adapt(task, grid, tmp_path / "out")
    assert asked["times"] == 2
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.01)


@pytest.fixture
def clock(make_grid, monkeypatch) -> Clock:
    """The exchange's own waits, without waiting."""
    monkeypatch.setattr(exchange, "time", made := Clock())
    monkeypatch.setattr(exchange, "POLL_SECONDS", 0.2)
    monkeypatch.setattr(exchange, "RESEND_SECONDS", 4.0)
    return made


def test_a_client_that_answers_badly_is_asked_less_and_less_often(make_task, make_grid, tmp_path, clock):
    task = make_task(methods=["tent"], flower={"quorum": 1.0, "timeout_seconds": 3600.0, "retries": 0})
    grid, asked = make_grid(task), []
    bad = node_of(grid, "client-0001")

    def tamper(node, reply):
        if node == bad and reply.metadata.message_type == TURN and len(asked) < 9:
            asked.append(clock.now)
            reply.content["config"]["samples"] = -1
        return reply

    grid.tamper = tamper
    adapt(task, grid, tmp_path / "out")
    waits = np.diff(asked)
    assert waits == pytest.approx([4, 8, 16, 32, 64, 128, 128, 128], abs=4.5)
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))  # once it is well again


def test_a_client_that_is_away_is_asked_as_soon_as_ever(make_task, make_grid, tmp_path, clock):
    task = make_task(methods=["tent"], flower={"quorum": 1.0, "timeout_seconds": 3600.0, "retries": 0})
    grid, asked = make_grid(task), []
    away = node_of(grid, "client-0001")

    def tamper(node, reply):
        if node == away and reply.metadata.message_type == TURN and len(asked) < 9:
            asked.append(clock.now)
            return Message(Error(code=3, reason="killed"), reply_to=grid.sent[-1])
        return reply

    grid.tamper = tamper
    adapt(task, grid, tmp_path / "out")
    assert np.diff(asked) == pytest.approx([4.0] * 8, abs=0.5)


def test_too_few_clients_are_an_error_that_says_what_to_change(make_task, make_grid, tmp_path):
    task = make_task(flower={"join_seconds": 0.3})
    grid = make_grid(task)
    grid.online.remove(node_of(grid, "client-0000"))
    with pytest.raises(FedadeError, match=r"3 of 4 clients came within 0 s; .*flower.join_seconds"):
        adapt(task, grid, tmp_path / "out")


def test_names_that_are_not_expected_or_taken_are_refused(make_task, make_grid, tmp_path, caplog):
    task = make_task(methods=["tent"])
    grid = make_grid(task)
    grid.nodes |= {5000: {"client": "mallory"}, 5001: {"client": "client-0000"}}
    grid.online |= {5000, 5001}
    adapt(task, grid, tmp_path / "out")
    assert "'mallory', which is not in flower.clients; refused" in caplog.text
    assert "'client-0000', but node" in caplog.text
    asked = {message.metadata.dst_node_id for message in grid.sent if message.metadata.message_type == TURN}
    assert asked.isdisjoint({5000, 5001})


def test_a_message_that_the_network_lost_is_sent_again_before_its_time_is_over(
    make_task, make_grid, tmp_path, clock, caplog
):
    """As when the SuperLink has handed it out, and its answer to the node got lost: the node knows of nothing."""
    task = make_task(flower={"quorum": 1.0, "timeout_seconds": 3600.0, "retries": 0})
    grid, lost = make_grid(task), {0, 2}

    def tamper(node, reply):
        turn = turn_of(grid.sent[-1]) if reply.metadata.message_type == TURN else None
        if node == node_of(grid, "client-0001") and turn in lost:
            lost.remove(turn)
            return None
        return reply

    grid.tamper, begun = tamper, clock.now
    adapt(task, grid, tmp_path / "out")
    assert caplog.text.count("a message to client-0001 was lost on its way") == 2
    assert clock.now - begun < 60
    assert read_status(tmp_path / "out")["unanswered"] == 0
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


def test_a_hello_that_the_network_lost_is_said_again(make_task, make_grid, tmp_path, clock):
    task = make_task(methods=["tent"], flower={"join_seconds": 60.0})
    grid, lost = make_grid(task), []

    def tamper(node, reply):
        if node == node_of(grid, "client-0001") and not lost:
            lost.append(node)
            return None
        return reply

    grid.tamper = tamper
    adapt(task, grid, tmp_path / "out")
    assert lost


@pytest.mark.parametrize("in_order", [True, False])
def test_a_client_that_takes_long_has_not_lost_its_message(make_task, make_grid, tmp_path, clock, in_order):
    """Where it answers in order, a hello that is said meanwhile comes after its answer; elsewhere it would overtake."""
    task = make_task(methods=["tent"], flower={"quorum": 1.0, "timeout_seconds": 3600.0, "retries": 0})
    grid, held = make_grid(task, in_order=in_order), []
    slow, pull = node_of(grid, "client-0001"), grid.pull_messages

    def late(told):
        return told.src_node_id == slow and clock.now < slow_until[0] and (in_order or told.message_type == TURN)

    def pull_late(identities):
        found = [*held, *pull(identities)]
        held[:] = [message for message in found if late(message.metadata)]
        return [message for message in found if message not in held]

    slow_until, grid.pull_messages = [clock.now], pull_late

    def tamper(node, reply):
        if node == slow and reply.metadata.message_type == TURN:
            slow_until[0] = clock.now + 100
        return reply

    grid.tamper = tamper
    adapt(task, grid, tmp_path / "out")
    turns = [one for one in grid.sent if one.metadata.message_type == TURN and one.metadata.dst_node_id == slow]
    assert len(turns) == 3
    assert len(grid.sent) - len(turns) < 40
