"""What travels: instructions to clients, answers from them, and trees of tensors as safetensors."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedade.core import tree
from fedade.core.errors import FedadeError
from fedade.core.tree import Tree

TURN, HELLO = "train.turn", "query.hello"
"""Message types: one turn of a client, and the question for its name."""

NUMBER_BYTES = 8
_STYPE = "safetensors"
_CONFIG, _METRICS, _ARRAYS = "config", "metrics", "arrays"

Named = dict[str, Tensor]
"""A tree's leaves under names that follow its structure."""


class TurnOutcome(StrEnum):
    """How a client's turn ended; the reason for a failure stays in the client's own log."""

    done = "done"
    no_data = "no-data"
    bad_batch = "bad-batch"
    """Its batch was set aside, and it sat out as if there had been none."""
    failed = "failed"


@dataclass(frozen=True)
class Instruction:
    """One message of the server: all that a client has to do until the next one."""

    run: str
    """Names the run, so that a client keeps the states of different runs apart."""
    turn: int
    base: int
    """The last turn of this client whose answer counted; it continues from there. -1: from the beginning."""
    keep: int
    """The client's turn in the server's last checkpoint: earlier states will never be asked for again."""
    timestep: int
    """Where it is another than the client's own, that one is closed and this one opened; 0 only closes."""
    trains: bool
    """Whether to take part in the round."""
    observe_key: int
    round_key: int
    version: int
    """Which broadcast the shared layers are of; 0 are those deployed, which need not travel."""
    shared: Named = field(default_factory=dict)
    downlink: Named = field(default_factory=dict)
    """What the server tells this client alone about its last round."""
    nonce: str = ""
    """This message's own; only an answer that repeats it is one to this message."""


@dataclass(frozen=True)
class ReportedRow:
    """What a client tells of a timestep that it closed."""

    timestep: int
    samples: int
    measures: Mapping[str, float | list[float]]
    """The diagnostics that the user agreed to share."""


@dataclass(frozen=True)
class Answer:
    """One message of a client."""

    outcome: TurnOutcome
    samples: int = 0
    """Samples of the batch that the update was computed from."""
    uplink: Named = field(default_factory=dict)
    row: ReportedRow | None = None
    restarted: bool = False
    """The state that the server asked for is gone; the client began afresh."""
    nonce: str = ""
    """That of the message that it answers."""


def instruction_record(instruction: Instruction) -> RecordDict:
    """An instruction as Flower sends it."""
    fields = {name: value for name, value in vars(instruction).items() if name not in ("shared", "downlink")}
    arrays = {"shared": instruction.shared, "downlink": instruction.downlink}
    return RecordDict({_CONFIG: ConfigRecord(fields), _ARRAYS: _packed(arrays)})


def read_instruction(content: RecordDict) -> Instruction:
    """An instruction as a client gets it."""
    fields: dict[str, Any] = dict(content.config_records[_CONFIG])
    arrays = _unpacked(content)
    return Instruction(**fields, shared=arrays.get("shared", {}), downlink=arrays.get("downlink", {}))


def answer_record(answer: Answer) -> RecordDict:
    """An answer as Flower sends it."""
    fields: dict[str, Any] = {"outcome": answer.outcome.value, "restarted": answer.restarted, "nonce": answer.nonce}
    metrics: dict[str, Any] = {"samples": answer.samples}
    if answer.row is not None:
        metrics |= {"row.timestep": answer.row.timestep, "row.samples": answer.row.samples}
        metrics |= {f"measure.{name}": value for name, value in answer.row.measures.items()}
    content = RecordDict({_CONFIG: ConfigRecord(fields), _METRICS: MetricRecord(metrics)})
    content[_ARRAYS] = _packed({"uplink": answer.uplink})
    return content


def read_answer(content: RecordDict) -> Answer:
    """An answer as the server gets it; raises FedadeError where it is not one."""
    try:
        fields, metrics = content.config_records[_CONFIG], dict(content.metric_records[_METRICS])
        row = None
        if "row.timestep" in metrics:
            measures: Any = {
                name.removeprefix("measure."): value for name, value in metrics.items() if name.startswith("measure.")
            }
            row = ReportedRow(_whole(metrics["row.timestep"]), _whole(metrics["row.samples"]), measures)
        return Answer(
            TurnOutcome(str(fields["outcome"])),
            _whole(metrics["samples"]),
            _unpacked(content).get("uplink", {}),
            row,
            bool(fields["restarted"]),
            str(fields["nonce"]),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise FedadeError(f"its message is not an answer ({error!r})") from error


def content_bytes(content: RecordDict) -> int:
    """About how many bytes a message holds, without a copy of any of them."""
    arrays = sum(len(array.data) for record in content.array_records.values() for array in record.values())
    plain: list[Mapping[str, object]] = [*content.config_records.values(), *content.metric_records.values()]
    return arrays + sum(len(name) + _plain_bytes(value) for record in plain for name, value in record.items())


def _plain_bytes(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return sum(_plain_bytes(part) for part in value) if isinstance(value, list) else NUMBER_BYTES


def message_bytes(message: Message) -> int:
    """Bytes of a message as Flower transfers it: every object of it, headers included."""
    return sum(len(part.deflate()) for part in get_all_nested_objects(message).values())


def one_line(told: object) -> str:
    """What a client said, or an error that quotes it, as it may stand in a log: short, without control characters."""
    return "".join(sign if sign.isprintable() else " " for sign in str(told)[:300])


def named_leaves(values: Tree) -> Named:
    """A tree as named leaves."""
    return tree.to_named(values, "")


def digest(named: Named) -> str:
    """Names the values of some leaves."""
    return hashlib.sha256(save(_separate(named))).hexdigest()[:16]


def tree_like(form: Tree, named: Named) -> Tree:
    """Named leaves as a tree of the structure of `form`; the leaves' shapes are their own."""
    leaves = iter([named[name] for name in named_leaves(form)])
    return tree.tree_map(lambda _: next(leaves), form)


def _whole(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _packed(arrays: Mapping[str, Named]) -> ArrayRecord:
    # One array a tree: Flower adds about 450 bytes to every array that it sends.
    return ArrayRecord({
        name: Array("uint8", (len(blob),), _STYPE, blob)
        for name, blob in ((name, save(_separate(named))) for name, named in arrays.items() if named)
    })  # fmt: skip


def _separate(named: Named) -> Named:
    """Copies, because safetensors refuses tensors that share memory."""
    return {name: value.detach().cpu().clone() for name, value in named.items()}


def _unpacked(content: RecordDict) -> dict[str, Named]:
    found = {}
    for name, array in content.array_records.get(_ARRAYS, {}).items():
        if array.stype != _STYPE:
            raise FedadeError(f"its array {name} is {array.stype}, not {_STYPE}")
        try:
            found[str(name)] = load(array.data)
        except SafetensorError as error:
            raise FedadeError(f"its array {name} is not {_STYPE} ({error})") from error
    return found
