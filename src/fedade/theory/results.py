"""What theory says of a run, in numbers, one row per method and seed; and exponents by least squares on logarithms."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedade.reporting.outcomes import Label

COMPARATORS = {
    "head_convex": "best linear head on the deployed features, fitted to the labelled pool under the true prior",
    "prior": "deployed model reweighted by the true prior",
}
"""What losses are held against, by name; exponents are those of the first."""

CONFIDENCE = 0.95

POOR = 0.9
"""A fit that explains less than this share of the variance (R²) is called poor."""


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
        return self.measures.get(name, float("nan"))


def over_seeds(results: Sequence[TheoryResult]) -> list[TheoryResult]:
    """Means over the seeds of equal rows, schedules and horizons, in the order of the results. A recovery that some
    seeds never saw counts for those that did."""
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
    return list(dict.fromkeys(name for result in results for name in result.measures))


def theory_csv(results: Sequence[TheoryResult]) -> str:
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


class Exponent(NamedTuple):
    """An exponent and its confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class PowerLaw:
    """y = factor · x₁^b₁ · x₂^b₂ …, or the reason why none was fitted."""

    exponents: Mapping[str, Exponent]
    factor: float
    r_squared: float
    points: int
    remark: str = ""
    """What stands against the fit; empty if nothing does."""

    def __call__(self, **variables: NDArray[np.float64]) -> NDArray[np.float64]:
        values = np.full(np.broadcast_shapes(*(np.shape(x) for x in variables.values())), self.factor)
        for name, exponent in self.exponents.items():
            values = values * np.asarray(variables[name], dtype=float) ** exponent.value
        return values


VARIABLES: Mapping[str, Callable[[TheoryResult], float]] = {
    "T": lambda result: float(result.num_timesteps),
    "S̄": lambda result: result.measure("s"),
}
"""What regret is a power of."""


def regret_law(results: Sequence[TheoryResult], comparator: str, *variables: str) -> PowerLaw:
    """The exponents of some of `VARIABLES` in the regret against a comparator."""
    regrets = [result.measure(f"regret_{comparator}") for result in results]
    return fit_power_law(regrets, **{name: [VARIABLES[name](result) for result in results] for name in variables})


def fit_power_law(values: Sequence[float], **variables: Sequence[float]) -> PowerLaw:
    """Least squares of log y on log x; points that are not positive have no logarithm and are left out, which is said.

    >>> law = fit_power_law([2.0, 8.0, 18.0, 32.0], x=[1.0, 2.0, 3.0, 4.0])
    >>> round(law.exponents["x"].value, 6)
    2.0
    """
    everything = np.array([values, *variables.values()], dtype=float)
    usable = (np.isfinite(everything) & (everything > 0)).all(0)
    logarithms = np.log(everything[:, usable])
    remarks = []
    if not usable.all():
        remarks.append(f"{(~usable).sum()} of {len(usable)} points are not positive and were left out")
    design = np.vstack([np.ones(usable.sum()), logarithms[1:]]).T
    freedom = design.shape[0] - design.shape[1]
    if freedom < 1:
        return _no_fit(usable, [*remarks, "too few points for a fit"])
    if np.linalg.matrix_rank(design - design.mean(0) * (np.arange(design.shape[1]) > 0)) < design.shape[1]:
        return _no_fit(usable, [*remarks, "the variables do not move on their own"])
    coefficients, _, _, _ = np.linalg.lstsq(design, logarithms[0], rcond=None)
    residual = float(((logarithms[0] - design @ coefficients) ** 2).sum())
    total = float(((logarithms[0] - logarithms[0].mean()) ** 2).sum())
    r_squared = 1 - residual / total if total > 0 else 1.0
    if r_squared < POOR:
        remarks.append(f"poor fit, R² = {r_squared:.2f}")
    half = stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * np.sqrt(
        residual / freedom * np.diag(np.linalg.inv(design.T @ design))
    )
    exponents = {
        name: Exponent(float(value), float(value - width), float(value + width))
        for name, value, width in zip(variables, coefficients[1:], half[1:], strict=True)
    }
    return PowerLaw(exponents, float(np.exp(coefficients[0])), r_squared, int(usable.sum()), "; ".join(remarks))


def _no_fit(usable: NDArray[np.bool_], remarks: Sequence[str]) -> PowerLaw:
    return PowerLaw({}, float("nan"), float("nan"), int(usable.sum()), "; ".join(remarks))
