"""One client and its messages: states are a function of what the server counted, never of what got lost."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedade import __version__
from fedade.core import storage, tree
from fedade.core.context import RoundContext
from fedade.core.errors import FedadeError
from fedade.flower.client_app import Identity, make_client
from fedade.flower.snapshots import BEGINNING
from fedade.flower.turns import Client
from fedade.flower.wire import (
    Answer,
    Instruction,
    TurnOutcome,
    answer_record,
    instruction_record,
    named_leaves,
    read_answer,
    read_instruction,
)


def told(turn: int, timestep: int, base: int = BEGINNING, **changed) -> Instruction:
    said = {"keep": BEGINNING, "trains": True, "observe_key": 11, "round_key": 12 + turn, "version": 0}
    return Instruction(run="run", turn=turn, base=base, timestep=timestep, **{**said, **changed})


@pytest.fixture
def client(make_task, tmp_path) -> Client:
    identity = Identity.of({"client": "client-0001", "state-dir": str(tmp_path)}, {})
    return make_client(make_task(scenario={"num_timesteps": 6}), identity, "run")


def equal(first, second) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal(first[name], second[name]) for name in first)
    return all(torch.equal(a, b) for a, b in zip(tree.leaves(first), tree.leaves(second), strict=True))


def test_a_message_that_is_repeated_gives_the_same_answer_and_state(client):
    first = client.take_turn(told(0, 1))
    state = client.store.load(0)
    assert first.uplink
    again = client.take_turn(told(0, 1))
    assert equal(first.uplink, again.uplink)
    assert equal(state.client, client.store.load(0).client)


def test_a_turn_that_did_not_count_leaves_no_mark(client):
    client.take_turn(told(0, 1))
    expected = client.take_turn(told(2, 2, base=0))
    client.take_turn(told(1, 1, base=0))
    client.take_turn(told(3, 2, base=1))
    assert equal(client.take_turn(told(2, 2, base=0)).uplink, expected.uplink)


def test_the_personal_step_runs_with_the_next_message_on_the_new_layers(client):
    first = client.take_turn(told(0, 1))
    before = client.store.load(0)
    assert before.round_key is not None
    moved = {name: value + 0.01 for name, value in first.uplink.items()}
    client.take_turn(told(1, 1, base=0, trains=False, version=1, shared=moved))
    after = client.store.load(1)
    assert after.round_key is None
    shared = {name: moved[f"['{name}']"] for name in client.method.begin_server(client.deployment)}
    ctx = RoundContext(
        client.deployment,
        before.opened.inputs,
        torch.tensor(1),
        torch.tensor(12),
        shared,
        own_reference=client.labelled,
    )
    expected, _ = client.method.personalise(ctx, before.client, before.opened.plan)
    assert equal(after.client, expected)
    assert not equal(after.client, before.client)


def test_a_timestep_is_closed_when_the_next_one_opens(client):
    assert client.take_turn(told(0, 1, trains=False)).row is None
    row = client.take_turn(told(1, 2, base=0, trains=False)).row
    assert (row.timestep, row.samples) == (1, 12)
    assert {"accuracy_pre", "accuracy_post", "learning_rate"} <= row.measures.keys()
    last = client.take_turn(told(2, 0, base=1, trains=False))
    assert last.row.timestep == 2
    assert last.outcome is TurnOutcome.done


def test_a_client_that_was_away_catches_up_with_one_message(client):
    first = client.take_turn(told(0, 1))
    moved = {name: value + 0.01 for name, value in first.uplink.items()}
    late = client.take_turn(told(9, 5, base=0, version=7, shared=moved))
    assert late.row.timestep == 1
    assert client.store.load(9).timestep == 5
    assert late.uplink.keys() == moved.keys()


def test_states_that_the_server_will_never_ask_for_are_removed(client):
    client.take_turn(told(0, 1))
    client.take_turn(told(1, 2, base=0))
    client.take_turn(told(2, 3, base=1, keep=1))
    assert [path.stem for path in sorted(client.store.folder.glob("*.safetensors"))] == [
        "turn-00000001",
        "turn-00000002",
    ]


def test_a_state_of_another_format_is_refused_with_both_versions_named(client):
    client.take_turn(told(0, 1))
    (path,) = client.store.folder.glob("*.safetensors")
    tensors, metadata = storage.load_tensors(path)
    said = metadata["snapshot"].replace('"format": 2', '"format": 99').replace(f'"{__version__}"', '"9.9.9"')
    storage.save_tensors(path, tensors, {"snapshot": said})
    with pytest.raises(FedadeError, match=f"has format 99 of fedade 9.9.9, this is format 2 of fedade {__version__}"):
        client.store.load(0)


def test_a_state_of_other_settings_is_refused(client):
    client.take_turn(told(0, 1))
    with pytest.raises(FedadeError, match="was begun with other settings"):
        replace(client.store, settings="{}").load(0)


def test_a_broken_batch_is_set_aside_with_its_reason_and_the_state_stays(client, monkeypatch):
    batch = client.stream.take(1, "")
    wrong = batch._replace(inputs=torch.full((2, 1, 8, 8), float("nan")))
    for broken, reason in ((wrong, "NaN"), (batch._replace(inputs=torch.zeros(2, 3)), "has shape")):
        monkeypatch.setattr(type(client.stream), "take", lambda *_, one=broken: one)
        answer = client.take_turn(told(0, 1))
        assert (answer.outcome, answer.uplink) == (TurnOutcome.bad_batch, {})
        assert reason in (client.store.folder / "quarantine" / "1.txt").read_text()
        assert equal(client.store.load(0).client, client.store.form)
        assert client.take_turn(told(1, 1, base=0)).outcome is TurnOutcome.no_data


def test_instructions_and_answers_survive_the_wire(client):
    sent = told(3, 2, base=1, shared={"['a']": torch.arange(3.0)}, downlink={".known": torch.tensor([True, False])})
    found = read_instruction(instruction_record(sent))
    assert equal(found.shared, sent.shared)
    assert equal(found.downlink, sent.downlink)
    assert (found.turn, found.base, found.timestep, found.trains) == (3, 1, 2, True)
    answer = client.take_turn(told(0, 1))
    assert equal(read_answer(answer_record(answer)).uplink, answer.uplink)
    assert read_answer(answer_record(Answer(TurnOutcome.no_data))) == Answer(TurnOutcome.no_data)


def test_tensors_that_share_memory_travel_as_copies():
    one = torch.arange(4.0)
    named = named_leaves({"a": one, "b": one})
    assert equal(read_instruction(instruction_record(told(0, 1, shared=named))).shared, named)


@pytest.mark.parametrize("name", ["", "../escape", "a/b", "x" * 65, ".hidden"])
def test_names_that_could_leave_the_state_folder_are_refused(name):
    with pytest.raises(FedadeError, match="is no client name"):
        Identity.of({"client": name}, {})


@pytest.mark.parametrize("run", ["../../etc", "/etc", ""])
def test_a_server_cannot_lead_a_client_out_of_its_state_folder(run):
    with pytest.raises(FedadeError, match="is no name"):
        Identity.of({"client": "ada"}, {}).state_of(run)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda value: value * float("nan"), "holds NaN or infinite values"),
        (lambda value: value.flatten()[:1], r"has shape \[1\], expected"),
        (lambda value: value.double(), "is torch.float64, expected torch.float32"),
    ],
    ids=["nan", "shape", "type"],
)
def test_layers_that_are_not_the_methods_reach_no_state(client, change, reason):
    """What a client keeps would be no number for ever after, also with an honest server."""
    first = client.take_turn(told(0, 1))
    changed = {name: change(value) for name, value in first.uplink.items()}
    with pytest.raises(FedadeError, match=f"the server's layers: .* {reason}"):
        client.take_turn(told(1, 1, base=0, version=1, shared=changed))
    assert client.store.load(1) is None


def test_a_number_is_enough_of_a_name():
    found = Identity.of({"partition-id": 7, "state-dir": "/var/lib/fedade"}, {})
    assert (found.name, found.state_dir) == ("client-0007", Path("/var/lib/fedade/client-0007"))
