"""What a suite leaves behind for people: one list of results, tables, figures."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from fedade.core import storage
from fedade.core.events import Listener
from fedade.core.seeds import Seeds
from fedade.experiments.suites.grid import PAPER_SCHEDULES, Suite
from fedade.maths.schedules import VARIANTS
from fedade.products.results_file import line_of
from fedade.reporting import figures
from fedade.reporting.result_lines import Pivot, as_csv
from fedade.reporting.tables import write_tables
from fedade.runner.store import Record, records
from fedade.scenarios.settings import ScenarioSettings
from fedade.scenarios.streams import client_schedules, target_priors
from fedade.theory.study import Case, write_theory

SHOWN_ALPHAS = (100.0, 0.1)
"""The two Dirichlet factors of the paper's figure."""
CIFAR10_CLASSES = 10


def recorded(suite: Suite, folder: Path) -> list[Record]:
    """All cells of a suite's folder that ended, in the suite's order, whichever runs made them."""
    ended = [record for record in records(folder) if record.status.state in ("done", "failed")]
    seeds = sorted({record.cell.seed for record in ended})
    place = {frozenset(cell.labels.items()): number for number, cell in enumerate(suite.cells(seeds))}
    return sorted(ended, key=lambda record: place.get(frozenset(record.cell.labels.items()), len(place)))


def finish(suite: Suite, folder: Path, listener: Listener) -> list[Path]:
    """Write results, tables and figures of all that the folder holds; returns the files."""
    ended = recorded(suite, folder)
    written = []
    if ended:
        storage.write_bytes(folder / "results.csv", as_csv([line_of(record) for record in ended]).encode())
        written = [folder / "results.csv", *write_tables(suite.name, [record.outcome for record in ended], folder)]
    done = [record for record in ended if record.status.state == "done"]
    if suite.name in _FIGURES:
        drawn = _FIGURES[suite.name](done)
        figures.save(drawn, folder / "figures")
        written += [folder / "figures" / f"{name}.png" for name in drawn]
    if suite.name == "theory" and done:  # regret, path lengths and bounds of the runs, which are replayed for it
        cases = [Case(record.cell.labels, record.cell.experiment, record.path / "trace.parquet") for record in done]
        write_theory(cases, folder, report=lambda _, done, of: listener.on_preparation("theory", done, of))
        written += [folder / name for name in ("theory.csv", "theory.md", "regret-T.png", "regret-S.png")]
    return written


def _sensitivity(ended: Sequence[Record]) -> figures.Figures:
    """One figure per dataset: Fed-ADE over either bound of its rate, and a fixed rate over itself."""

    def moved(members: Sequence[Record], bound: str, kept: str) -> Sequence[figures.Curve]:
        """Over one bound, where the other is what it is most often."""
        values = Counter(record.cell.labels[kept] for record in members if kept in record.cell.labels)
        most_often = max(values, key=values.__getitem__, default=None)
        return _curves(_where(members, row="Fed-ADE", **{kept: most_often}), "schedule", bound)

    return {
        f"rates-{dataset}": figures.accuracy_against(
            [
                figures.Panel("η_min of Fed-ADE", moved(members, "low", "high")),
                figures.Panel("η_max of Fed-ADE", moved(members, "high", "low")),
                figures.Panel("η of FixLR", _curves(_where(members, row="FixLR"), "schedule", "rate")),
            ],
            f"{dataset}: accuracy against the learning rate",
        )
        for dataset, members in _by(ended, "dataset").items()
    }


def _heterogeneity(ended: Sequence[Record]) -> figures.Figures:
    """Clients as the paper shows them, and accuracy against the Dirichlet factor, one figure per schedule."""
    priors = {alpha: target_priors(ScenarioSettings(alpha=alpha), Seeds(0), CIFAR10_CLASSES) for alpha in SHOWN_ALPHAS}
    of_alpha = _by_schedule(ended, "alpha", "Dirichlet factor α", "how much clients differ")
    return {"clients": figures.client_distributions(priors)} | of_alpha


def _by_schedule(ended: Sequence[Record], label: str, setting: str, what: str) -> figures.Figures:
    """Accuracy against a setting, one figure per schedule."""
    return {
        f"accuracy-{schedule}": figures.accuracy_against(
            [figures.Panel(setting, _curves(members, "row", label))], f"schedule {schedule}: accuracy against {what}"
        )
        for schedule, members in _by(ended, "schedule").items()
    }


def _schedules(ended: Sequence[Record]) -> figures.Figures:  # noqa: ARG001 - nothing is run for it
    weights = {
        schedule: {
            variant: client_schedules(
                ScenarioSettings.model_validate({"schedule": schedule, "variant": variant, "num_clients": 1}), Seeds(0)
            )[0]
            for variant in VARIANTS
        }
        for schedule in PAPER_SCHEDULES
    }
    return {"schedules": figures.schedules_over_time(weights)}


_FIGURES: Mapping[str, Callable[[Sequence[Record]], figures.Figures]] = {
    "fig-lr": _sensitivity,
    "fig-bounds": _sensitivity,
    "fig-dirichlet": _heterogeneity,
    "fig-labelled": lambda ended: _by_schedule(ended, "labelled", "labelled images of a client", "labelled data"),
    "fig-schedules": _schedules,
}
"""What suites draw of their finished cells."""


def _where(ended: Iterable[Record], **labels: object) -> list[Record]:
    return [record for record in ended if all(record.cell.labels.get(name) == value for name, value in labels.items())]


def _by(ended: Iterable[Record], label: str) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in ended:
        if label in record.cell.labels:
            groups.setdefault(str(record.cell.labels[label]), []).append(record)
    return groups


def _curves(ended: Iterable[Record], name: str, setting: str) -> list[figures.Curve]:
    """Accuracy against a setting, a curve for every value of another label."""
    lines = [line_of(record) for record in ended if setting in record.cell.labels]
    pivot = Pivot(lines, itemgetter(name), itemgetter(setting), "accuracy_post")

    def curve(title: str) -> figures.Curve:
        points = [column for column in sorted(pivot.columns, key=float) if (title, column) in pivot.measured]
        means = [pivot.mean(title, column) or 0.0 for column in points]
        deviations = [pivot.measured[title, column].deviation or 0.0 for column in points]
        return figures.Curve(title, tuple(map(float, points)), tuple(means), tuple(deviations))

    return [curve(title) for title in pivot.rows]
