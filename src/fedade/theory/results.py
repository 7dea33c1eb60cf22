"""What theory says of a run, in numbers: one row per method and seed."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedade.reporting.outcomes import Label

COMPARATORS = {
    "head_convex": "best linear head on the deployed features, fitted to the labelled pool under the true prior",
    "prior": "deployed model reweighted by the true prior",
}
"""What losses are held against, by name; exponents are those of the first."""


@dataclass(frozen=True)
class TheoryResult:
    """One method and seed of one scenario."""

    labels: Mapping[str, Label]
    """What the suite calls it."""
    row: str
    """Its name in tables: the suite's, else the method's."""
    seed: int
    schedule: str
    num_timesteps: int
    measures: Mapping[str, float]
    """Measures by their names in docs/theory.md; what a method does not have is absent."""

    def measure(self, name: str) -> float:
        """A measure, NaN where it is absent."""
        return self.measures.get(name, float("nan"))


def over_seeds(results: Sequence[TheoryResult]) -> list[TheoryResult]:
    """Means over the seeds of equal rows, schedules and horizons, in the order of the results.

    A recovery that some seeds never saw counts for those that did.
    """
    groups: dict[tuple[str, str, int], list[TheoryResult]] = {}
    for result in results:
        groups.setdefault((result.row, result.schedule, result.num_timesteps), []).append(result)
    return [
        replace(
            group[0],
            measures={name: float(np.nanmean([seed.measure(name) for seed in group])) for name in measured(group)},
        )
        for group in groups.values()
    ]


def measured(results: Sequence[TheoryResult]) -> list[str]:
    """The names of all measures that some result has."""
    return list(dict.fromkeys(name for result in results for name in result.measures))


def theory_csv(results: Sequence[TheoryResult]) -> str:
    """All results as a table of comma-separated values; what is absent is empty."""
    own = ("row", "seed", "schedule", "num_timesteps")
    labels = [name for name in dict.fromkeys(name for result in results for name in result.labels) if name not in own]
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*own, *labels, *measured(results)])
    for result in results:
        known = (f"{result.measures[name]:.8g}" if name in result.measures else "" for name in measured(results))
        table.writerow(
            [*(getattr(result, name) for name in own), *(result.labels.get(name, "") for name in labels), *known]
        )
    return text.getvalue()
