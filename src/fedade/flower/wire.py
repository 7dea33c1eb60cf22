"""What travels: instructions to clients, answers from them, trees of tensors as safetensors, and the forms of these."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedade.core import tree
from fedade.core.context import ClientContext, RoundContext, Truth, context_before_first_batch
from fedade.core.deployment import Deployment, Reference
from fedade.core.errors import FedadeError
from fedade.core.method import Method, Plan, with_rounds
from fedade.core.tree import Tree

TURN, HELLO = "train.turn", "query.hello"
"""Message types: one turn of a client, and the question for its name."""
NUMBER_BYTES = 8
INLINE_BYTES = 2**20
"""Trees up to this size travel among the other fields. Flower transfers every record, array and piece of an array with
requests of its own, four in all; larger ones it cuts to pieces, and keeps once if many clients are sent the same."""
_STYPE = "safetensors"
_CONFIG, _ARRAYS = "config", "arrays"
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
    fields = {name: value for name, value in vars(instruction).items() if name not in ("shared", "downlink")}
    return _packed(fields, {"shared": instruction.shared, "downlink": instruction.downlink})


def read_instruction(content: RecordDict) -> Instruction:
    fields: dict[str, Any] = dict(content.config_records[_CONFIG])
    arrays = _unpacked(content)
    fields = {name: value for name, value in fields.items() if not name.startswith(f"{_ARRAYS}.")}
    return Instruction(**fields, shared=arrays.get("shared", {}), downlink=arrays.get("downlink", {}))


def answer_record(answer: Answer) -> RecordDict:
    fields: dict[str, Any] = {"outcome": answer.outcome.value, "restarted": answer.restarted, "nonce": answer.nonce}
    fields["samples"] = answer.samples
    if answer.row is not None:
        fields |= {"row.timestep": answer.row.timestep, "row.samples": answer.row.samples}
        fields |= {f"measure.{name}": value for name, value in answer.row.measures.items()}
    return _packed(fields, {"uplink": answer.uplink})


def read_answer(content: RecordDict) -> Answer:
    """An answer as the server gets it; raises FedadeError where it is not one."""
    try:
        fields = content.config_records[_CONFIG]
        row = None
        if "row.timestep" in fields:
            measured = [name for name in fields if name.startswith("measure.")]
            measures: Any = {name.removeprefix("measure."): fields[name] for name in measured}
            row = ReportedRow(_whole(fields["row.timestep"]), _whole(fields["row.samples"]), measures)
        return Answer(
            TurnOutcome(str(fields["outcome"])),
            _whole(fields["samples"]),
            _unpacked(content).get("uplink", {}),
            row,
            bool(fields["restarted"]),
            str(fields["nonce"]),
        )
    except FedadeError:
        raise
    except Exception as error:  # a client may send whatever it likes, and ends nobody's run with it
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
    return tree.to_named(values, "")


def digest(named: Named) -> str:
    """Names the values of some leaves."""
    return hashlib.sha256(save(_separate(named))).hexdigest()[:16]


def tree_like(form: Tree, named: Named) -> Tree:
    """Named leaves as a tree of the structure of `form`; the leaves' shapes are their own."""
    leaves = iter([named[name] for name in named_leaves(form)])
    return tree.tree_map(lambda _: next(leaves), form)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _packed(fields: Mapping[str, Any], arrays: Mapping[str, Named]) -> RecordDict:
    """One record of all that is small; trees that are not are arrays, one each."""
    blobs = {name: save(_separate(named)) for name, named in arrays.items() if named}
    inline = {f"{_ARRAYS}.{name}": blob for name, blob in blobs.items() if len(blob) <= INLINE_BYTES}
    content = RecordDict({_CONFIG: ConfigRecord({**fields, **inline})})
    if large := {name: blob for name, blob in blobs.items() if len(blob) > INLINE_BYTES}:
        content[_ARRAYS] = ArrayRecord(
            {name: Array("uint8", (len(blob),), _STYPE, blob) for name, blob in large.items()}
        )
    return content


def _separate(named: Named) -> Named:
    """Copies, because safetensors refuses tensors that share memory."""
    return {name: value.detach().cpu().clone() for name, value in named.items()}


def _unpacked(content: RecordDict) -> dict[str, Named]:
    blobs: dict[str, Any] = {
        name.removeprefix(f"{_ARRAYS}."): value
        for name, value in content.config_records[_CONFIG].items()
        if name.startswith(f"{_ARRAYS}.")
    }
    for name, array in content.array_records.get(_ARRAYS, {}).items():
        if array.stype != _STYPE:
            raise FedadeError(f"its array {name} is {array.stype}, not {_STYPE}")
        blobs[str(name)] = array.data
    found = {}
    for name, blob in blobs.items():
        try:
            found[name] = load(blob)
        except (SafetensorError, TypeError) as error:
            raise FedadeError(f"its array {name} is not {_STYPE} ({error})") from error
    return found


SAMPLES = 8
NAME_BYTES = 512
"""Enough for a tensor's name, type and shape."""
ROOM = 2**16
"""For all else that an answer tells."""


@dataclass(frozen=True)
class Forms:
    """Trees of the structure, shapes and types of what is exchanged; their values mean nothing."""

    plan: Plan
    """What a client decides in a timestep, and may tell of it."""
    uplink: Tree = ()
    downlink: Tree = ()
    """What it alone is told."""


def most_bytes_of(forms: Forms) -> int:
    """Most bytes that an honest answer can hold: its update, its row, and room for the names of both."""
    leaves = len(tree.leaves(forms.uplink)) + len(forms.plan)
    numbers = sum(value.numel() for value in forms.plan.values())
    return tree.num_bytes(forms.uplink) + NUMBER_BYTES * numbers + NAME_BYTES * leaves + ROOM


@torch.no_grad()
def rehearse(method: Method, deployment: Deployment) -> Forms:
    """One timestep of one client with one round, if there are rounds, on a reference set cut short to be quick."""
    few = Reference(*(part[:SAMPLES] for part in deployment.reference))
    short, federated = replace(deployment, reference=few), with_rounds(method)
    shared = {} if federated is None else federated.begin_server(short)
    truth = Truth(few.labels, deployment.source_prior) if method.card.oracle else None
    state = method.begin(context_before_first_batch(short))
    known = (short, few.inputs, torch.tensor(1), torch.tensor(0), shared, truth)
    state, plan = method.observe(ClientContext(*known), state)
    if federated is None:
        return Forms(plan)
    _, plan, uplink = federated.local_round(RoundContext(*known), state, plan)
    _, downlinks = federated.aggregate(short, shared, tree.stack([uplink]), torch.tensor([float(len(few.inputs))]))
    return Forms(plan, uplink, tree.take(downlinks, 0))
