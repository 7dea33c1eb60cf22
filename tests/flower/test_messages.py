"""What leaves a client: the actual messages, read to the last field."""

import pytest
from safetensors.torch import load

from fedade.flower.wire import HELLO, TURN

AGREED = ("learning_rate", "accuracy_post")


def uplinks(messages):
    """The tensors of every message, by name."""
    for message in messages:
        for record in message.content.array_records.values():
            for array in record.values():
                yield load(array.data)


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
        assert set(content) == {"config", "metrics", "arrays"}
        assert set(content.config_records["config"]) == {"outcome", "restarted", "nonce"}
        assert content.config_records["config"]["outcome"] == "done"
        found |= set(content.metric_records["metrics"])
    assert found == {"samples", "row.timestep", "row.samples", *(f"measure.{name}" for name in AGREED)}


def test_without_agreement_no_diagnostic_leaves_a_client(make_task, served):
    grid = served(make_task(flower={"share": []}))
    told = {name for message in grid.received for record in message.content.metric_records.values() for name in record}
    assert told == {"samples", "row.timestep", "row.samples"}


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
        assert said == {"outcome": "failed", "restarted": False}
        assert not any(record for record in message.content.array_records.values())
    assert "secret" in caplog.text
