"""What a run found, in numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fedade.core import trace
from fedade.reporting.answers import answer_measures, answer_table
from fedade.reporting.rendering import Column, Table, TableCell, TableRow


class Result(NamedTuple):
    """One method and seed; accuracies are means over clients and timesteps, from 0 to 1."""

    method: str
    seed: int
    accuracy_post: float
    accuracy_pre: float
    learning_rate_mean: float | None
    seconds: float
    bytes_sent: int
    oracle: bool
    accuracy_fresh: float | None = None
    """Accuracy on an independent draw of the same timestep, where that was asked for."""
    answers: Mapping[str, float] = {}
    """What is known of its answers beyond accuracy, by the names of `reporting.answers`."""

    def asdict(self) -> dict[str, Any]:
        return self._asdict()


class ResultRow(NamedTuple):
    """One method over all seeds."""

    method: str
    oracle: bool
    accuracy_post: float
    deviation: float | None
    """Over seeds; one seed has none."""
    accuracy_pre: float
    learning_rate: float | None
    share_of_oracle: float | None
    """(accuracy − source) / (oracle − source), where both are there."""
    megabytes_sent: float
    seconds: float
    answers: Mapping[str, float] = {}
    """As in `Result`, means over seeds."""


def result(table: pa.Table, method: str, seed: int, oracle: bool, seconds: float) -> Result:
    def mean(name: str) -> float:
        known = trace.mean(trace.column(table, name))
        return float("nan") if known is None else known

    has_rate = "learning_rate" in table.column_names
    return Result(
        method=method,
        seed=seed,
        accuracy_post=mean("accuracy_post"),
        accuracy_pre=mean("accuracy_pre"),
        learning_rate_mean=float(np.nanmean(trace.column(table, "learning_rate"))) if has_rate else None,
        seconds=seconds,
        bytes_sent=int(trace.column(table, "bytes_sent").sum()),
        oracle=oracle,
        accuracy_fresh=mean("accuracy_fresh") if "accuracy_fresh" in table.column_names else None,
        answers=answer_measures(table),
    )


def rows(results: Iterable[Result]) -> list[ResultRow]:
    by_method: dict[str, list[Result]] = {}
    for result in results:
        by_method.setdefault(result.method, []).append(result)
    means = {method: float(np.mean([result.accuracy_post for result in seeds])) for method, seeds in by_method.items()}
    return [_row(seeds, means) for seeds in by_method.values()]


def _row(seeds: list[Result], means: Mapping[str, float]) -> ResultRow:
    first, post = seeds[0], means[seeds[0].method]
    source, oracle = means.get("source", np.inf), means.get("oracle-prior", -np.inf)
    told = [name for name in first.answers if all(name in result.answers for result in seeds)]
    rates = [result.learning_rate_mean or 0.0 for result in seeds]
    return ResultRow(
        method=first.method,
        oracle=first.oracle,
        accuracy_post=post,
        deviation=float(np.std([result.accuracy_post for result in seeds], ddof=1)) if len(seeds) > 1 else None,
        accuracy_pre=float(np.mean([result.accuracy_pre for result in seeds])),
        learning_rate=None if first.learning_rate_mean is None else float(np.mean(rates)),
        share_of_oracle=(post - source) / (oracle - source) if oracle > source else None,
        megabytes_sent=float(np.mean([result.bytes_sent for result in seeds])) / 1e6,
        seconds=float(np.mean([result.seconds for result in seeds])),
        answers={name: float(np.mean([result.answers[name] for result in seeds])) for name in told},
    )


_DEVIATION = Column("±")
_COLUMNS = (
    Column("after"), _DEVIATION, Column("before"), Column("oracle share", ".0%", nothing=""),
    Column("mean rate", ".3g", nothing=""), Column("MB sent", ".1f"), Column("seconds", ".1f"),
)  # fmt: skip
NO_LABELS = "Accuracy is not known where clients have no labels."
BEYOND_THE_ORACLE = (
    "An oracle share above 100 % is no error: oracle-prior is told the true class frequencies and nothing else, and a "
    "method that also mends what the model makes of its inputs can beat it."
)


def run_tables(rows: Sequence[ResultRow], title: str = "") -> list[Table]:
    """The tables of a run: accuracy and cost, and what is known of the answers beyond accuracy."""
    answers = answer_table({row.method: row.answers for row in rows}, {row.method for row in rows if row.oracle}, title)
    return [run_table(rows, title), *([answers] if answers else [])]


def run_table(rows: Sequence[ResultRow], title: str = "") -> Table:
    best = max((row.accuracy_post for row in rows if not row.oracle), default=None)
    several_seeds = any(row.deviation is not None for row in rows)
    columns = tuple(column for column in _COLUMNS if several_seeds or column is not _DEVIATION)

    def shown(row: ResultRow) -> TableRow:
        deviation = None if row.deviation is None else _known(100 * row.deviation)
        cells = (
            TableCell(_known(100 * row.accuracy_post), best=not row.oracle and row.accuracy_post == best),
            *([TableCell(deviation)] if several_seeds else []),
            TableCell(_known(100 * row.accuracy_pre)),
            TableCell(row.share_of_oracle),
            *map(TableCell, (row.learning_rate, row.megabytes_sent, row.seconds)),
        )
        return TableRow(row.method, cells, row.oracle)

    unknown = any(np.isnan(row.accuracy_post) for row in rows)
    beyond = any(row.share_of_oracle is not None and round(100 * row.share_of_oracle) > 100 for row in rows)
    notes = [*([NO_LABELS] if unknown else []), *([BEYOND_THE_ORACLE] if beyond else [])]
    return Table(title, columns, tuple(map(shown, rows)), tuple(notes))


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
