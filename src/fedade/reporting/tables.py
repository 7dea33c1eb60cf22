"""The tables of a suite: ours beside the paper's, and the comparison of the methods."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.reporting import names, paper
from fedade.reporting.comparison import LEAST_PAIRS, ComparedRow, Paired, compare
from fedade.reporting.grid import Entry, Grid, Key, benchmark_of, grid
from fedade.reporting.outcomes import Label, Outcome
from fedade.reporting.paper import PaperPlace, Published
from fedade.reporting.rendering import EXTENSIONS, Column, Table, TableCell, TableRow, document
from fedade.reporting.results import BEYOND_THE_ORACLE

ONE_TABLE = ("table4",)
"""Suites whose benchmarks are columns of one table, as in the paper."""
_ONE_SEED_NOTE = (
    "Accuracy in percent after adaptation, seed {seeds}. Marked: the best of the methods that finished; oracles are "
    "not ranked."
)
_SEEDS_NOTE = (
    "Accuracy in percent after adaptation: mean ± standard deviation over the seeds {seeds}. Marked: the best mean of "
    "the methods that finished every seed; oracles are not ranked."
)
_PAPER_NOTE = "Cells with three numbers are ours | paper | difference. Why ours differ: docs/deviations.md."
_COMPARISON_NOTES = (
    "Average rank over {ranked_cells} of {cells} cells (scenario and seed): those that every ranked method finished.",
    "Oracle share: (accuracy - source) / (oracle-prior - source), over scenarios in which the oracle gains at least "
    "0.1 point.",
    "To Fed-ADE: mean difference over pairs of equal scenario and seed, with its 95 % interval; effect: the mean over "
    "the standard deviation of the differences; p: {p}.",
)
_TESTS = (
    "paired t-test and Wilcoxon's test, Holm's correction over {tests} baselines. Pairs share data and models, so p is "
    "optimistic"
)
_COMPARISON_COLUMNS = (
    Column("average rank"), Column("oracle share, %", ".0f"), Column("after"), Column("before"),
    Column("to Fed-ADE", "+.2f"), Column("effect", "+.2f"), Column("p (t-test)", ".3f", least=0.001),
    Column("p (Wilcoxon)", ".3f", least=0.001), Column("pairs", ".0f"), Column("seconds", ".1f"),
    Column("MB sent", ".1f"),
)  # fmt: skip


def suite_tables(suite: str, outcomes: Sequence[Outcome]) -> list[Table]:
    """Accuracies and comparison per benchmark, and the comparison over all benchmarks where there are several.
    Benchmarks, columns and rows stand in the order of the outcomes."""
    if not outcomes:
        return []
    benchmarks: dict[Key, list[Outcome]] = {}
    for outcome in outcomes:
        benchmarks.setdefault(() if suite in ONE_TABLE else benchmark_of(outcome), []).append(outcome)
    tables = []
    for benchmark, members in benchmarks.items():
        part = grid(members)
        title = ", ".join([suite, *(names.title(label, value) for label, value in benchmark)])
        tables.append(accuracy_table(suite, title, part))
        tables.append(comparison_table(f"{title}: comparison", part, _wall_times(suite, len(benchmarks))))
    if len(benchmarks) > 1:
        tables.append(comparison_table(f"{suite}: comparison over all benchmarks", grid(outcomes), _wall_times(suite)))
    return tables


def printed(suite: str, outcomes: Sequence[Outcome], fmt: str) -> str:
    tables = suite_tables(suite, outcomes)
    if not tables:
        raise FedadeError(f"suite {suite} has no cells to tabulate; run `fedade bench {suite}` first")
    return document(tables, fmt)


def write_tables(suite: str, outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Write all tables as `tables.txt`, `.md`, `.tex` and `.csv`; a suite without cells has none."""
    tables = suite_tables(suite, outcomes)
    paths = {fmt: folder / f"tables.{extension}" for fmt, extension in EXTENSIONS.items() if tables}
    for fmt, path in paths.items():
        storage.write_bytes(path, document(tables, fmt).encode())
    return list(paths.values())


def accuracy_table(suite: str, title: str, grid: Grid) -> Table:
    """Methods by scenario, as ours | paper | difference where the paper has a number."""
    titles, headings = row_names(grid.rows), _headings(grid.scenarios)
    best = {scenario: _best(grid, scenario) for scenario in grid.scenarios}

    def cell(scenario: Key, row: Key) -> TableCell:
        entry = grid.entry(scenario, row)
        paper, count, marked = published(suite, dict(scenario + row)), len(entry.accuracies), row in best[scenario]
        return TableCell(entry.mean, entry.deviation, count=count, paper=paper, status=_status(entry), best=marked)

    rows = tuple(
        TableRow(titles[row], tuple(cell(scenario, row) for scenario in grid.scenarios), row in grid.oracles)
        for row in grid.rows
    )
    compared = any(cell.paper for row in rows for cell in row.cells)
    seeds = ", ".join(map(str, grid.seeds))
    told = (_SEEDS_NOTE if len(grid.seeds) > 1 else _ONE_SEED_NOTE).format(seeds=seeds)
    notes = [told, *([_PAPER_NOTE] if compared else []), *_failures(grid)]
    return Table(title, tuple(Column(headings[scenario]) for scenario in grid.scenarios), rows, tuple(notes))


def comparison_table(title: str, grid: Grid, wall_times: Mapping[str, Published]) -> Table:
    """Rank, share of the oracle's gain, paired difference to Fed-ADE and costs of every method."""
    comparison = compare(grid)
    titles = row_names(grid.rows)
    best = min((contender.rank for contender in comparison.contenders if contender.rank is not None), default=None)
    rows = tuple(
        TableRow(titles[one.row], _comparison_cells(one, comparison.cells, best, wall_times), one.oracle)
        for one in comparison.contenders
    )
    tests = sum(one.paired is not None and one.paired.wilcoxon is not None for one in comparison.contenders)
    p = _TESTS.format(tests=tests) if tests else f"needs {LEAST_PAIRS} pairs"
    facts = {"cells": comparison.cells, "ranked_cells": comparison.ranked_cells, "p": p}
    shares = [contender.share.share for contender in comparison.contenders]
    beyond = any(share is not None and round(100 * share) > 100 for share in shares)
    notes = [*(note.format(**facts) for note in _COMPARISON_NOTES), *([BEYOND_THE_ORACLE] if beyond else [])]
    return Table(title, _COMPARISON_COLUMNS, rows, tuple(notes))


def _comparison_cells(
    contender: ComparedRow, cells: int, best_rank: float | None, wall_times: Mapping[str, Published]
) -> tuple[TableCell, ...]:
    pairs = contender.paired or Paired(0)
    few = "too few pairs" if contender.paired is not None and pairs.pairs < LEAST_PAIRS else ""
    partial = "" if contender.finished == cells else f"{contender.finished} of {cells} cells"
    times = [wall_times[name] for name in names.paper_rows(dict(contender.row)) if name in wall_times]
    return (
        TableCell(contender.rank, best=contender.rank is not None and contender.rank == best_rank),
        TableCell(
            None if contender.share.share is None else 100 * contender.share.share, count=contender.share.scenarios
        ),
        TableCell(contender.accuracy_post, count=contender.finished, status=partial),
        TableCell(contender.accuracy_pre, count=contender.finished, status=partial),
        TableCell(pairs.difference, low=pairs.low, high=pairs.high, count=pairs.pairs if contender.paired else None),
        TableCell(pairs.effect),
        TableCell(pairs.t_test, status=few),
        TableCell(pairs.wilcoxon, status=few),
        TableCell(pairs.pairs if contender.paired else None),
        TableCell(contender.seconds, count=contender.finished, paper=times[0] if times else None),
        TableCell(contender.megabytes, count=contender.finished),
    )


def published(suite: str, labels: Mapping[str, Label]) -> Published | None:
    numbers = paper.accuracies(suite)
    where = {label: str(value) for label, value in labels.items() if label in ("dataset", "kind", "source", "schedule")}
    places = [PaperPlace(**where, row=name) for name in names.paper_rows(labels)]
    return next((numbers[place] for place in places if place in numbers), None)


def _wall_times(suite: str, benchmarks: int = 1) -> Mapping[str, Published]:
    """The paper's wall times are averages over all of table 1, so they stand beside a comparison of all of it."""
    return paper.wall_times() if suite == "table1" and benchmarks == 1 else {}


def _best(grid: Grid, scenario: Key) -> frozenset[Key]:
    """The ranked rows whose mean is the highest as printed; only rows that finished every seed."""
    entries = {row: grid.entry(scenario, row) for row in grid.ranked}
    means = {row: round(entry.mean, 2) for row, entry in entries.items() if entry.complete and entry.mean is not None}
    return frozenset(row for row, mean in means.items() if mean == max(means.values()))


def _status(entry: Entry) -> str:
    if entry.complete:
        return ""
    if entry.accuracies:
        return f"{len(entry.accuracies)} of {len(entry.accuracies) + entry.failed + entry.missing} seeds"
    return "failed" if entry.failed else "missing"


def _failures(grid: Grid) -> list[str]:
    """Why cells failed: a line for every row and reason."""
    titles = row_names(grid.rows)
    counts = Counter((titles[row], outcome.failure) for (_, row, _), outcome in grid.outcomes.items())
    failed = [(name, reason, count) for (name, reason), count in counts.items() if reason is not None]
    return [f"Failed: {name}, cells: {count}, reason: {reason}" for name, reason, count in failed]


def row_names(rows: Sequence[Key]) -> dict[Key, str]:
    """The paper's names, and the settings that tell rows of the same name apart."""
    return _named(rows, dict.fromkeys(label for row in rows for label, _ in row), always="row")


def _headings(scenarios: Sequence[Key]) -> dict[Key, str]:
    """What tells the scenarios of a table apart; the schedule where there is only one."""
    # The kind of shift goes first: in a table of two benchmarks it says more than the dataset that follows from it.
    order = dict.fromkeys(("kind", *(label for scenario in scenarios for label, _ in scenario)))
    return _named(scenarios, order, always=None if len(scenarios) > 1 else "schedule")


def _named(keys: Sequence[Key], order: Iterable[str], always: str | None) -> dict[Key, str]:
    """Each key by the values of the labels that it takes to tell all keys apart, in this order."""
    labels = [dict(key) for key in keys]
    kept = [] if always is None else [always]

    def told_apart(by: Sequence[str]) -> int:
        return len({tuple(values.get(label) for label in by) for values in labels})

    for label in order:
        if told_apart([*kept, label]) > told_apart(kept):
            kept.append(label)
    return {
        key: ", ".join(names.title(label, values[label]) for label in kept if label in values)
        for key, values in zip(keys, labels, strict=True)
    }
