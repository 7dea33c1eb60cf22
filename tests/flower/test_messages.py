"""What leaves a client: the actual messages, read to the last field."""

import pytest
import torch
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from safetensors.torch import load

from fedade.flower import wire
from fedade.flower.wire import (
    HELLO,
    TURN,
    Answer,
    Instruction,
    TurnOutcome,
    answer_record,
    instruction_record,
    read_answer,
    read_instruction,
)

ALWAYS = ("outcome", "restarted", "nonce", "samples", "row.timestep", "row.samples")
AGREED = ("learning_rate", "accuracy_post")


def uplinks(messages):
    """The tensors of every message, by name."""
    for message in messages:
        assert set(message.content) == {"config"}
        for name, value in message.content.config_records["config"].items():
            if isinstance(value, bytes):
                assert name == "arrays.uplink"
                yield load(value)


@pytest.fixture
def answers(make_task, served):
    grid = served(make_task(flower={"share": list(AGREED)}))
    assert {message.metadata.message_type for message in grid.received} == {TURN, HELLO}
    return [message for message in grid.received if message.metadata.message_type == TURN]


def test_only_the_shared_layers_leave_a_client(answers):
    sent = list(uplinks(answers))
    assert len(sent) == 2 * 2 * 2  # timesteps, rounds, participants
    for tensors in sent:
        assert tensors
        assert all("'body." in name and "head" not in name for name in tensors)
        assert not any("running" in name for name in tensors)


def test_beside_them_only_counts_and_the_agreed_diagnostics_leave_a_client(answers):
    found = set()
    for message in answers:
        content = message.content
        assert set(content) == {"config"}
        assert content.config_records["config"]["outcome"] == "done"
        found |= set(content.config_records["config"])
    assert found == {*ALWAYS, "arrays.uplink", *(f"measure.{name}" for name in AGREED)}


def test_without_agreement_no_diagnostic_leaves_a_client(make_task, served):
    grid = served(make_task(flower={"share": []}))
    answers = [message for message in grid.received if message.metadata.message_type == TURN]
    assert {name for one in answers for name in one.content.config_records["config"]} == {*ALWAYS, "arrays.uplink"}


def test_the_reason_of_a_failure_stays_with_the_client(make_task, make_grid, tmp_path, monkeypatch, caplog):
    from fedade.core.errors import FedadeError
    from fedade.flower import turns
    from fedade.flower.server_app import adapt

    def broken(*_):
        raise FedadeError("cannot write /home/ada/secret: No space left on device")

    task = make_task(flower={"retries": 0, "timeout_seconds": 0.5})
    grid = make_grid(task)
    monkeypatch.setattr(turns.Store, "save", broken)
    with pytest.raises(FedadeError, match="no quorum"):
        adapt(task, grid, tmp_path / "out")
    turns_answered = [one for one in grid.received if one.metadata.message_type == TURN]
    assert turns_answered
    for message in turns_answered:
        said = dict(message.content.config_records["config"])
        assert len(said.pop("nonce")) == 16
        assert said == {"outcome": "failed", "restarted": False, "samples": 0}
        assert set(message.content) == {"config"}
    assert "secret" in caplog.text


@pytest.mark.parametrize("most", [0, 10**6])
def test_trees_travel_as_fields_or_as_arrays_and_arrive_the_same(monkeypatch, most):
    monkeypatch.setattr(wire, "INLINE_BYTES", most)
    shared = {"a": torch.arange(3.0), "b": torch.zeros(0)}
    told = Instruction("run", 3, 2, 1, 2, True, 5, 6, 1, shared, {}, "nonce")
    content = instruction_record(told)
    assert ("arrays" in content) == (most == 0)
    found = read_instruction(content)
    assert {**vars(found), "shared": None} == {**vars(told), "shared": None}
    assert all(torch.equal(found.shared[name], value) for name, value in shared.items())
    answered = read_answer(answer_record(Answer(TurnOutcome.done, 4, shared, nonce="nonce")))
    assert (answered.samples, answered.nonce, set(answered.uplink)) == (4, "nonce", {"a", "b"})


def test_a_turn_is_few_objects(answers):
    """Each costs Flower four requests."""
    assert {len(get_all_nested_objects(message)) for message in answers} == {3}
