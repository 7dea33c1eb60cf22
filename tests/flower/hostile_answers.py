"""Thirty and more answers of a client that lies, each with what the server says of it."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from .hostile import Change, array, like, replace_uplink, say, uplink

HUGE = 3_000_000
"""Bytes that no answer of the small network has."""


def _with(**fields) -> Change:
    """Other fields, by names in which two underscores stand for a dot."""
    return lambda content: say(content, **{name.replace("__", "."): value for name, value in fields.items()})


def _with_update(change) -> Change:
    """Another update."""
    return lambda content: replace_uplink(content, change(uplink(content)))


def _without(field: str) -> Change:
    def change(content: RecordDict) -> None:
        fields = {name: value for name, value in content.config_records["config"].items() if name != field}
        content["config"] = ConfigRecord(fields)

    return change


def _first(tensors, value) -> dict[str, torch.Tensor]:
    """The first tensor replaced."""
    first, *others = tensors
    return {first: value(tensors[first]), **{name: tensors[name] for name in others}}


def _no_data_with_nan(content: RecordDict) -> None:
    replace_uplink(content, like(uplink(content), float("nan")))
    say(content, outcome="no-data")


def _zeros_of_countless_samples(content: RecordDict) -> None:
    replace_uplink(content, like(uplink(content), 0.0))
    say(content, samples=2**62)


def _much_data(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({"uplink": array(bytes(HUGE))})


def _nothing(content: RecordDict) -> None:
    content["config"] = ConfigRecord({})


ANSWERS: list[tuple[Change, str]] = [
    (_no_data_with_nan, "it holds an update, but says no-data"),
    (_zeros_of_countless_samples, f"it counts {2**62} samples"),
    (_with_update(lambda sent: like(sent, float("nan"))), "NaN or infinite"),
    (_with_update(lambda sent: like(sent, float("inf"))), "NaN or infinite"),
    (_with_update(lambda sent: _first(sent, lambda value: torch.zeros(3))), "has shape"),
    (_with_update(lambda sent: _first(sent, lambda value: value.double())), "float64"),
    (_with_update(lambda sent: dict(list(sent.items())[1:])), "it lacks"),
    (_with_update(lambda sent: {name.replace("body", "head"): value for name, value in sent.items()}), "it lacks"),
    (_with_update(lambda sent: {**sent, "more\n\x1b[31m": torch.ones(1)}), "it holds"),
    (_with_update(lambda sent: {name: value + 1e6 for name, value in sent.items()}), "it moves by"),
    (_with(arrays__uplink=b"spam"), "is not safetensors"),
    (_with(arrays__uplink="spam"), "is not safetensors"),
    (_with(samples=-1), "is not a count"),
    (_with(samples=1.5), "is not a count"),
    (_with(outcome="won"), "is not an answer"),
    (_with(outcome="bad-batch"), "it holds an update, but says bad-batch"),
    (_with(nonce="0" * 16), "it answers another message"),
    (_without("nonce"), "is not an answer"),
    (_nothing, "is not an answer"),
    (_much_data, f"it has {HUGE // 1_000_000}"),
    (_with(outcome="x" * HUGE), f"it has {HUGE // 1_000_000}"),
]
"""Refused as a whole."""

ROWS: list[tuple[Change, str]] = [
    (_with(measure__client=0.0), "there is no column client to tell"),
    (_with(measure__bytes_sent=1.0), "there is no column bytes_sent to tell"),
    (_with(measure__accuracy_post=5.0), "accuracy_post is 5"),
    (_with(measure__accuracy_post=float("nan")), "accuracy_post is nan"),
    (_with(measure__accuracy_post=[0.1, 0.2]), "accuracy_post is a list"),
    (_with(measure__learning_rate=-1.0), "learning_rate is -1"),
    (_with(measure__s=float("inf")), "s is inf"),
    (_with(measure__s="0.5"), "s is '0.5'"),
    (_with(measure__true_prior=[0.5, 0.5]), "true_prior has 2 numbers"),
    (_with(measure__true_prior=[2.0] * 10), "true_prior is 2"),
    (_with(row__timestep=10**6), "it is of timestep"),
    (_with(row__samples=2**62), f"it counts {2**62} samples"),
]
"""Of which the row is refused, and the rest counts."""

ALL = [*ANSWERS, *ROWS]
HONEST, LIARS = 2, 3
"""Clients, in the order of their numbers."""
TIMESTEPS = len(ALL) // LIARS
"""With one round each, and a last turn that closes."""


def attack_of(liar: int, turn: int) -> int | None:
    """Which of them a liar sends in a turn; the first turn is honest, or no row of it would ever be asked for."""
    return None if turn == 0 else LIARS * (turn - 1) + liar


def lie(content: RecordDict, liar: int, turn: int) -> None:
    """Make an answer hostile."""
    if (attack := attack_of(liar, turn)) is not None:
        ALL[attack][0](content)


def own_up(content: RecordDict, liar: int, turn: int) -> None:
    """Make it what should be left of a hostile one: nothing, or all but its row."""
    attack = attack_of(liar, turn)
    if attack is not None and attack < len(ANSWERS):
        _without("arrays.uplink")(content)
        say(content, outcome="failed")
    if attack is not None:
        for field in [*content.config_records["config"]]:
            if field.startswith(("row.", "measure.")):
                _without(field)(content)
