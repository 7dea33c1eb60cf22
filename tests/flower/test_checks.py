"""Updates that are not what was asked for never touch the average."""

import logging

import pytest
import torch
from flwr.app import Array, ArrayRecord, Message
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.errors import FedadeError
from fedade.flower.bounds import check_update
from fedade.flower.overview import read_status
from fedade.flower.server_app import adapt
from fedade.flower.settings import FlowerSettings
from fedade.flower.wire import TURN, Answer, TurnOutcome

from .hostile import replace_uplink, uplink
from .traces import told

SHARED = {"['body.a']": torch.ones(3), "['body.b']": torch.ones(2, 2)}


def update(**changed) -> Answer:
    return Answer(TurnOutcome.done, 5, {**SHARED, **{f"['body.{name}']": value for name, value in changed.items()}})


def check(answer: Answer, max_update: float = 10.0) -> None:
    check_update(answer, SHARED, SHARED, FlowerSettings(max_update=max_update))


def test_what_was_asked_for_is_let_through():
    check(update(a=torch.tensor([1.5, 1.0, 0.5])))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (update(a=torch.tensor([1.0, float("nan"), 1.0])), r"body.a'\] holds NaN"),
        (update(b=torch.full((2, 2), float("inf"))), r"body.b'\] holds NaN or infinite"),
        (update(a=torch.ones(4)), r"shape \[4\], expected \[3\]"),
        (update(a=torch.ones(3, dtype=torch.float64)), "float64, expected torch.float32"),
        (Answer(TurnOutcome.done, 5, {"['head.weight']": torch.ones(3)}), "lacks"),
        (update(c=torch.ones(1)), r"holds \['body.c'\]"),
        (Answer(TurnOutcome.done, 5), "lacks"),
        (Answer(TurnOutcome.done, 0, SHARED), "counts no sample"),
        (Answer(TurnOutcome.done, 10_001, SHARED), "counts 10001 samples, more than 10000"),
        (Answer(TurnOutcome.no_data, 5, SHARED), "holds an update, but says no-data"),
        (update(a=torch.full((3,), 1e3)), "moves by"),
    ],
)
def test_what_is_wrong_is_named(answer, reason):
    with pytest.raises(FedadeError, match=reason):
        check(answer)


def test_where_nothing_is_shared_an_update_is_held_against_what_a_fresh_client_sends():
    check_update(update(a=torch.tensor([1.5, 1.0, 0.5])), SHARED, {}, FlowerSettings(max_update=10.0))
    with pytest.raises(FedadeError, match="max_update"):
        check_update(update(a=torch.full((3,), 1e3)), SHARED, {}, FlowerSettings(max_update=10.0))


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_the_norm_is_measured_from_the_layers_that_were_sent(distance, allowed):
    size = 7**0.5
    moved = update(a=torch.ones(3) + torch.tensor([distance * size, 0.0, 0.0]))
    if distance > allowed * 1.001:
        with pytest.raises(FedadeError, match="max_update"):
            check(moved, allowed)
    elif distance < allowed * 0.999:
        check(moved, allowed)


def poisoned(kind: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    first = next(iter(tensors))
    return {
        "nan": {**tensors, first: torch.full_like(tensors[first], float("nan"))},
        "shape": {**tensors, first: tensors[first].flatten()[:1].clone()},
        "head": {name.replace("body.", "head."): value for name, value in tensors.items()},
        "far": {name: value + 1e6 for name, value in tensors.items()},
    }[kind]


@pytest.mark.parametrize("kind", ["nan", "shape", "head", "far"])
def test_a_bad_client_is_named_counted_and_left_out(make_task, make_grid, tmp_path, caplog, kind):
    task = make_task(protocol={"participation": 1.0, "rounds": 1}, flower={"quorum": 0.75, "retries": 0})
    honest, attacked = make_grid(task), make_grid(task)
    bad = next(node for node, said in attacked.nodes.items() if said["client"] == "client-0002")

    def tamper(node: int, reply: Message) -> Message:
        if node == bad and reply.metadata.message_type == TURN and (tensors := uplink(reply.content)):
            replace_uplink(reply.content, poisoned(kind, tensors))
        return reply

    attacked.tamper = tamper
    attacked.run_config = {**attacked.run_config, "state-dir": str(tmp_path / "attacked-state")}
    adapt(task, honest, tmp_path / "honest")
    with caplog.at_level(logging.WARNING, "flwr.fedade"):
        adapt(task, attacked, tmp_path / "attacked")
    assert read_status(tmp_path / "attacked")["refused"] == {"client-0002": 2}
    assert "answer of client-0002 refused" in caplog.text
    rows = told(task, tmp_path / "attacked").to_pylist()
    took_part = {(row["timestep"], row["client"]): row["participated"] for row in rows}
    assert took_part == {(time, client): int(client != 2) for time in (1, 2) for client in range(4)}
    rates = [row["learning_rate"] for row in rows if row["client"] == 0]
    assert rates[0] == told(task, tmp_path / "honest").to_pylist()[0]["learning_rate"]


def test_bytes_that_are_no_tensors_are_refused(make_task, make_grid, tmp_path):
    task = make_task(flower={"retries": 0, "timeout_seconds": 0.3})
    grid = make_grid(task)

    def tamper(_node: int, reply: Message) -> Message:
        if reply.metadata.message_type == TURN:
            reply.content["arrays"] = ArrayRecord({"uplink": Array("uint8", (4,), "safetensors", b"spam")})
        return reply

    grid.tamper = tamper
    with pytest.raises(FedadeError, match="no quorum"):
        adapt(task, grid, tmp_path / "out")
