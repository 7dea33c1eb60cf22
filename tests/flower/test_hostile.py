"""One client lies, in every way that its messages allow: it is named and not counted, and the others go on."""

import json
import logging

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from safetensors.torch import load

from fedade.core import trace
from fedade.core.trace import IDENTIFIERS
from fedade.flower import exchange, wire
from fedade.flower.bounds import distance
from fedade.flower.overview import read_status
from fedade.flower.privacy import PrivacyAccount
from fedade.flower.server import Server
from fedade.flower.server_app import adapt
from fedade.flower.settings import SHAREABLE
from fedade.flower.wire import named_leaves

from .hostile import array, corrupt, like, replace_uplink, say, uplink
from .traces import assert_same, simulated, told

LIAR = "client-0002"
SHORT = {"quorum": 0.75, "retries": 0, "timeout_seconds": 5.0}
EVERYBODY = {"protocol": {"participation": 1.0, "rounds": 1}, "flower": SHORT}


@pytest.fixture
def attacked(make_task, make_grid, tmp_path, caplog):
    """A run of four clients of whom one lies; its status, and the task for its trace."""

    def run(change, **settings):
        task = make_task(**{**EVERYBODY, **settings})
        grid = make_grid(task)
        corrupt(grid, LIAR, change)
        with caplog.at_level(logging.WARNING, "flwr.fedade"):
            adapt(task, grid, tmp_path / "out")
        return read_status(tmp_path / "out"), told(task, tmp_path / "out")

    return run


def no_data_with_nan(content):
    if tensors := uplink(content):
        say(content, outcome="no-data")
        replace_uplink(content, like(tensors, float("nan")))


def countless_samples(content):
    if tensors := uplink(content):
        say(content, samples=2**62)
        replace_uplink(content, like(tensors, 0.0))


def tensors_of_no_size(content):
    """Nothing, in a shape whose strides no number holds."""
    if uplink(content):
        shape = {"dtype": "F32", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}
        header = json.dumps({"a": shape}).encode()
        say(content, **{"arrays.uplink": len(header).to_bytes(8, "little") + header})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (tensors_of_no_size, "its message is not an answer"),
        (no_data_with_nan, "it holds an update, but says no-data"),
        (countless_samples, f"it counts {2**62} samples, more than"),
    ],
)
def test_what_would_have_walked_around_the_checks_is_refused(attacked, caplog, change, reason):
    status, rows = attacked(change)
    assert status["refused"] == {LIAR: 2}
    assert f"answer of {LIAR} refused: {reason}" in caplog.text
    assert trace.column(trace.where(rows, client=2), "participated").tolist() == [0, 0]
    assert trace.column(trace.where(rows, client=1), "participated").tolist() == [1, 1]


def test_a_minority_moves_the_average_no_farther_than_the_fleets_own_updates_do(attacked, monkeypatch, caplog):
    moves, aggregate = [], Server._aggregate

    def measured(self, method, updates):
        before = named_leaves(self.progress.shared)
        honest = [distance(answer.uplink, before) for member, answer in updates.items() if member.name != LIAR]
        aggregate(self, method, updates)
        moves.append(distance(named_leaves(self.progress.shared), before) / max(honest))

    def far_off(content):
        if tensors := uplink(content):
            replace_uplink(content, {name: value - 0.05 for name, value in tensors.items()})

    monkeypatch.setattr(Server, "_aggregate", measured)
    status, _ = attacked(far_off)
    assert status["scaled_back"] == {LIAR: 2}
    assert f"update of {LIAR} moves by" in caplog.text
    assert all(move < 1.6 for move in moves)  # (3 honest + 3 medians of the liar) / 4


def test_honest_clients_are_not_scaled_back(attacked):
    status, _ = attacked(lambda content: None)
    assert status["scaled_back"] == status["refused"] == {}


def test_an_average_that_is_no_number_is_not_told_to_anybody(attacked, monkeypatch, caplog):
    from fedade.methods.fed_ade import FedAde

    monkeypatch.setattr(
        FedAde, "aggregate", lambda _self, _deployment, shared, *_: (like(dict(shared), float("nan")), ())
    )
    status, rows = attacked(lambda content: None)
    assert status["finished"]
    assert "the average holds NaN or infinite values" in caplog.text
    assert trace.column(rows, "n").tolist() == [12] * 8


def test_the_server_clips_what_a_private_client_did_not(attacked, monkeypatch):
    released = []

    def release(self, broadcast, participants):
        released.append(named_leaves(broadcast))
        return broadcast

    monkeypatch.setattr(PrivacyAccount, "release", release)
    norm = 1e-4

    def unclipped(content):
        if tensors := uplink(content):
            replace_uplink(content, {name: value + 0.01 for name, value in tensors.items()})

    status, _ = attacked(unclipped, flower={**SHORT, "privacy": {"noise_multiplier": 1.0, "clipping_norm": norm}})
    assert status["scaled_back"] == {LIAR: 2}
    assert len(released) == 2
    assert distance(released[1], released[0]) <= norm * 1.01
    assert all(torch.isfinite(value).all() for value in released[1].values())


@pytest.mark.parametrize(
    ("told_instead", "reason"),
    [
        ({"measure.client": 0.0}, "there is no column client to tell"),
        ({"measure.timestep": 1.0}, "there is no column timestep to tell"),
        ({"measure.bytes_sent": 1.0}, "there is no column bytes_sent to tell"),
        ({"measure.accuracy_post": 5.0}, "accuracy_post is 5, expected 0 to 1"),
        ({"measure.accuracy_post": float("nan")}, "accuracy_post is nan, expected 0 to 1"),
        ({"measure.accuracy_post": [0.1, 0.2]}, "accuracy_post is a list, expected a number"),
        ({"measure.learning_rate": -1.0}, "learning_rate is -1, expected 0 to inf"),
        ({"measure.s": float("inf")}, "s is inf, expected a finite number"),
        ({"measure.s": -1.7e308}, "s is -1.7e+308, expected a number of single precision"),
        ({"measure.learning_rate": 1e308}, "learning_rate is 1e+308, expected a number of single precision"),
        ({"measure.true_prior": [0.5, 0.5]}, "true_prior has 2 numbers, expected 10"),
        ({"measure.true_prior": 1.0}, "true_prior is a number, expected a list"),
        ({"measure.true_prior": [2.0] * 10}, "true_prior is 2, expected 0 to 1"),
        ({"measure.true_prior": ["x"] * 10}, "true_prior is 'x', expected a number"),
        ({"measure.s": "5"}, "s is '5', expected a number"),
        ({"measure.s": b"5"}, "s is \"b'5'\", expected a number"),
        ({"measure.s": True}, "s is 'True', expected a number"),
        ({"row.timestep": 2}, "it is of timestep 2, not 1"),
        ({"row.samples": 2**62}, f"it counts {2**62} samples, more than"),
    ],
    ids=str,
)
def test_a_row_that_is_not_the_clients_own_is_left_out_of_the_trace(attacked, caplog, told_instead, reason):
    def change(content):
        if content.config_records["config"].get("row.timestep") == 1:
            say(content, **told_instead)

    status, rows = attacked(change, methods=["fix-lr-mid"])
    assert status["refused"] == {LIAR: 1}
    assert f"row of {LIAR} refused: {reason}" in caplog.text
    assert trace.column(trace.where(rows, client=2), "n").tolist() == [0, 12]
    assert trace.column(trace.where(rows, client=1), "n").tolist() == [12, 12]
    assert set(rows.column_names) <= {*IDENTIFIERS, "n", "participated", "bytes_sent", "bytes_received", *SHAREABLE}


def test_whole_numbers_in_a_row_are_numbers_like_others(attacked):
    """Arrow refuses those that single columns cannot hold exactly, which ended the run."""

    def change(content):
        if "row.timestep" in content.config_records["config"]:
            say(content, **{"measure.s": 2**62 + 1, "measure.prior": [2**62 + 1] * 10})

    status, rows = attacked(change)
    assert status["finished"]
    assert trace.column(trace.where(rows, client=2), "s").tolist() == [2.0**62] * 2
    assert trace.column(trace.where(rows, client=1), "s").max() <= 1


def test_a_row_is_told_once_and_only_when_its_timestep_closes(attacked, caplog):
    def change(content):
        if "row.timestep" not in content.config_records["config"]:
            say(content, **{"row.timestep": 1, "row.samples": 12, "measure.accuracy_post": 1.0})

    status, rows = attacked(change, protocol={"participation": 1.0, "rounds": 2})
    assert status["refused"] == {LIAR: 3}  # the first message closes nothing, nor do those of second rounds
    assert "it was not asked for one" in caplog.text
    assert trace.column(trace.where(rows, client=2), "accuracy_post").max() < 1.0


def test_what_the_user_does_not_share_is_refused_too(attacked, caplog):
    status, _ = attacked(
        lambda content: (
            say(content, **{"row.timestep": 1, "measure.prior": [0.1] * 10})
            if content.config_records["config"].get("row.timestep") == 1
            else None
        ),
        flower={**SHORT, "share": ["s"]},
    )
    assert status["refused"] == {LIAR: 1}
    assert "there is no column prior to tell" in caplog.text


def test_an_answer_to_an_earlier_message_is_not_one_to_this(attacked, caplog):
    earlier = []

    def change(content):
        if earlier:
            content["config"] = earlier[0]["config"]
        elif uplink(content):
            earlier.append(dict(content))

    status, rows = attacked(change)
    assert status["refused"] == {LIAR: 2}
    assert f"answer of {LIAR} refused: it answers another message" in caplog.text
    assert trace.column(trace.where(rows, client=2), "n").tolist() == [0, 0]


def test_an_update_counts_once(attacked, caplog):
    earlier = []

    def change(content):
        if tensors := uplink(content):
            earlier.append(tensors)
            replace_uplink(content, earlier[max(0, len(earlier) - 3)])  # its own, the first again, then those before

    status, rows = attacked(change, scenario={"num_timesteps": 4})
    assert status["refused"] == {LIAR: 2}
    assert "it repeats an update that counted already" in caplog.text
    assert trace.column(trace.where(rows, client=1), "participated").tolist() == [1, 1, 1, 1]


def test_messages_that_arrive_twice_change_nothing(make_task, make_grid, tmp_path):
    task = make_task()
    grid = make_grid(task)
    heard, pull = [], grid.pull_messages

    def doubled(identities):
        heard.extend(fresh := pull(identities))
        return [*fresh, *fresh, *heard[:-1]]

    grid.pull_messages = doubled
    adapt(task, grid, tmp_path / "out")
    assert read_status(tmp_path / "out")["refused"] == {}
    assert_same(told(task, tmp_path / "out"), simulated(task, tmp_path / "simulator"))


HUGE = 30_000_000


def much_data(content):
    content["arrays"] = ArrayRecord({"uplink": array(bytes(HUGE))})


def many_metrics(content):
    say(content, **{"measure.prior": [0.1] * (HUGE // 8)})


def long_words(content):
    say(content, outcome="x" * HUGE)


@pytest.mark.parametrize("change", [much_data, many_metrics, long_words])
def test_what_is_too_large_is_neither_copied_nor_decoded(attacked, caplog, monkeypatch, change):
    decoded, counted = [], []
    monkeypatch.setattr(wire, "load", lambda blob: decoded.append(len(blob)) or load(blob))
    monkeypatch.setattr(
        exchange, "message_bytes", lambda message: counted.append(size := wire.message_bytes(message)) or size
    )
    status, _ = attacked(change)
    assert status["refused"] == {LIAR: 3}
    assert f"answer of {LIAR} refused: it has {HUGE // 1_000_000}" in caplog.text
    assert max(decoded + counted) < HUGE
    assert status["traffic"]["largest_turn"] > HUGE


def test_a_name_that_is_none_is_not_taken(make_task, make_grid, tmp_path, caplog):
    task = make_task(methods=["tent"], flower={"clients": [], "timeout_seconds": 5.0})
    grid = make_grid(task, [f"client-000{number}" for number in range(4)])

    def tamper(node, reply):
        if node == 5000:
            reply.content["config"] = ConfigRecord({"client": "../" * 1000})
        return reply

    for node, said in grid.nodes.items():
        grid.nodes[node] = {**said, "partition-id": int(said["client"][-1])}
    grid.nodes[5000] = {"client": "mallory"}
    grid.online.add(5000)
    grid.tamper = tamper
    adapt(task, grid, tmp_path / "out")
    assert read_status(tmp_path / "out")["clients"] == [f"client-000{number}" for number in range(4)]
    assert "node 5000 tells no client name; refused" in caplog.text


def test_a_refusal_is_one_line_whatever_a_client_calls_its_tensors(attacked, caplog):
    def forged(content):
        if tensors := uplink(content):
            replace_uplink(
                content, {**tensors, "\nanswer of client-0001 refused: \x1b[31mit lies" + "!" * 9999: torch.ones(1)}
            )

    status, _ = attacked(forged)
    assert status["refused"] == {LIAR: 2}
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(lines) == 2
    assert all(line.startswith(f"answer of {LIAR}") and line.isprintable() and len(line) < 400 for line in lines)
