"""Outcomes with planted accuracies."""

from fedade.reporting.outcomes import Label, Outcome
from fedade.reporting.results import Result

PLACE: dict[str, Label] = {
    "suite": "table1", "dataset": "cifar10", "kind": "label", "schedule": "lin", "source": "uniform",
}  # fmt: skip


ROW_LABELS = ("measure", "feature_measure", "prior", "rate", "low", "high")


def labels(row: str, seed: int = 0, **changed: Label) -> dict[str, Label]:
    """The labels of a cell of table 1 on CIFAR-10, unless changed; a row's method has its name in small letters."""
    return {**PLACE, "row": row, "method": row.lower(), "seed": seed, **changed}


def finished(row: str, percent: float, seed: int = 0, oracle: bool = False, **changed: Label) -> Outcome:
    """A cell that reached an accuracy after adaptation, and one point less before it."""
    named = labels(row, seed, **changed)
    result = Result(
        method=str(named["method"]),
        seed=seed,
        accuracy_post=percent / 100,
        accuracy_pre=percent / 100 - 0.01,
        learning_rate_mean=None,
        seconds=10.0 + seed,
        bytes_sent=2_500_000,
        oracle=oracle,
    )
    return Outcome(named, result, row_labels=ROW_LABELS)


def failed(row: str, reason: str, seed: int = 0, **changed: Label) -> Outcome:
    """A cell without a result."""
    return Outcome(labels(row, seed, **changed), None, reason, ROW_LABELS)


def planned(row: str, seed: int = 0, **changed: Label) -> Outcome:
    """A cell that was not run yet."""
    return Outcome(labels(row, seed, **changed), None, row_labels=ROW_LABELS)
