"""What theory says of the runs of a suite: a page of Markdown, and regret on log axes with fitted exponents."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedade.reporting.rendering import markdown_lines
from fedade.theory.results import COMPARATORS, VARIABLES, PowerLaw, TheoryResult, over_seeds, regret_law

_WARNINGS = """\
* The bound is a statement about convex losses and gradient descent on one client. Here only the head is convex.
* V^L1 and V^cos differ in kind: a cosine distance is of second order in the step. Neither estimates the other.
* η* is known up to a constant only. Whether η_min ≤ η* ≤ η_max cannot be tested.
* S̄ holds the noise of finite batches, which grows with T whatever the shift; `corrected` takes most of it away.
* Exponents from a few horizons are rough. An interval that holds both 2/3 and 1 decides nothing.
"""


def theory_markdown(results: Sequence[TheoryResult], comparator: str, settings: str) -> str:
    """Signals and path lengths, regret, fitted exponents, bound, ceiling and recovery."""
    means = over_seeds(results)
    return "\n".join(
        [
            "# Theory from runs\n",
            f"{settings} Means over seeds; ± is the standard deviation over clients. Every measure is explained in "
            "docs/theory.md; all of them are in theory.csv.\n",
            "## How far clients moved, and what the signals say of it\n",
            _table(means, _PATHS),
            "## Dynamic regret\n",
            *(f"* `{name}`: {COMPARATORS[name]}" for name in COMPARATORS),
            "",
            _table(means, _REGRETS),
            f"## Exponents of the regret against {comparator}\n",
            "The theory promises S̄^{1/3} T^{2/3}. Least squares on logarithms, 95 % intervals.\n",
            _exponents(results, comparator),
            "## The bound's terms\n",
            _table([result for result in means if "bound" in result.measures], _BOUND),
            "## The convergence theorem: its ceiling, and both sides of its inequality\n",
            _table([result for result in means if "ceiling" in result.measures], _CEILING),
            "## Recovery after abrupt changes\n",
            _table([result for result in means if result.measures.get("changes_away")], _RECOVERY),
            "## What not to read into it\n",
            _WARNINGS,
        ]
    )


_PATHS = (
    ("S̄_unc", "s_unc"), ("S̄_rep", "s_rep"), ("S̄_c", "s"), ("S̄_c corrected", "s_corrected"), ("V^L1", "v_l1"),
    ("V^cos", "v_cos"), ("V_rep", "v_rep"),
)  # fmt: skip
_AGAINST = (("", "regret_{}"), (", 0-1", "regret_01_{}"), (", worst period", "interval_regret_{}_max"))
_REGRETS = (
    ("loss", "loss"),
    *((name + words, measure.format(name)) for name in COMPARATORS for words, measure in _AGAINST),
)
_BOUND = (
    ("η", "rate"), ("optimisation", "bound_optimisation"), ("projection", "bound_projection"),
    ("adaptation", "bound_adaptation"), ("bound", "bound"), ("with V^L1", "bound_l1"),
    ("η* (order)", "rate_star_order"), ("η* (argmin)", "rate_star"), ("bound there", "bound_at_rate_star"),
)  # fmt: skip
_CEILING = (
    ("ρ²", "rho_squared"), ("χ", "chi"), ("ceiling", "ceiling"), ("step on ψ", "ceiling_shared"),
    ("step on φ", "ceiling_personal"), ("η of the run", "rate"), ("left side", "descent"),
    ("right side", "descent_bound"),
)  # fmt: skip
_RECOVERY = (
    ("away: steps", "recovery_away"), ("changes", "changes_away"),
    ("back: steps", "recovery_back"), ("changes", "changes_back"),
)  # fmt: skip

ColumnTitles = Sequence[tuple[str, str]]
"""Heading and measure; a measure's deviation, where there is one, has its name and `_sd`."""


def _table(results: Sequence[TheoryResult], columns: ColumnTitles) -> str:
    if not results:
        return "None of these runs has one.\n"
    head = ("method", "schedule", "T", *(heading for heading, _ in columns))
    rows = []
    for result in results:
        told = (_number(result.measure(name)) + _spread(result, f"{name}_sd") for _, name in columns)
        rows.append([result.row, result.schedule, str(result.num_timesteps), *told])
    return markdown_lines(head, rows) + "\n"


def _exponents(results: Sequence[TheoryResult], comparator: str) -> str:
    fits: list[tuple[str, str, PowerLaw]] = []
    for row in dict.fromkeys(result.row for result in results):
        own = [result for result in results if result.row == row]
        for schedule in dict.fromkeys(result.schedule for result in own):
            law = regret_law([result for result in own if result.schedule == schedule], comparator, "T")
            fits.append((row, schedule, law))
        fits.append((row, "all", regret_law(own, comparator, "S̄")))
        fits.append((row, "all, together", regret_law(own, comparator, "S̄", "T")))
    told = [(row, runs, exponent_words(law), _number(law.r_squared), str(law.points)) for row, runs, law in fits]
    return markdown_lines(("method", "runs", "fit", "R²", "points"), told) + "\n"


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3g}"


def _spread(result: TheoryResult, deviation: str) -> str:
    return f" ± {_number(result.measure(deviation))}" if deviation in result.measures else ""


_MARKERS = {"lin": "o", "sin": "s", "squ": "^", "ber": "D"}
_SIGNS = {"o": "●", "s": "■", "^": "▲", "D": "◆"}


def regret_over_time(results: Sequence[TheoryResult], comparator: str) -> Figure:
    """Dynamic regret against T, one panel per schedule, one line per method; a dotted line shows T^{2/3}."""
    schedules = list(dict.fromkeys(result.schedule for result in results))
    rows, columns = -(-len(schedules) // 2), min(2, len(schedules))
    figure = Figure(figsize=(5.5 * columns, 4.8 * rows), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for panel, schedule in zip(panels, schedules, strict=False):
        chosen = [result for result in results if result.schedule == schedule]
        _draw(panel, chosen, "T", comparator)
        _guide(panel, 2 / 3, "$T^{2/3}$")
        horizons = sorted({result.num_timesteps for result in chosen})
        panel.set_xticks(horizons, [str(horizon) for horizon in horizons])
        panel.set_xticks([], minor=True)
        panel.set(xlabel="timesteps T", ylabel=f"regret against {comparator}")
        panel.set_title(f"schedule {schedule}", fontsize=10)
        _legend(panel)
    for panel in panels[len(schedules) :]:
        panel.set_axis_off()
    return figure


def regret_over_signal(results: Sequence[TheoryResult], comparator: str) -> Figure:
    """Dynamic regret against S̄_c over all schedules and T; the marker is the schedule, a dotted line S̄^{1/3}."""
    figure = Figure(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot()
    _draw(axes, results, "S̄", comparator)
    _guide(axes, 1 / 3, r"$\bar{S}^{1/3}$")
    axes.set(xlabel=r"cumulative signal $\bar{S}_c$", ylabel=f"regret against {comparator}")
    axes.set_title("  ".join(f"{_SIGNS[mark]} {name}" for name, mark in _MARKERS.items()), fontsize=9)
    _legend(axes)
    return figure


def exponent_words(law: PowerLaw) -> str:
    """A fit in words, for legends and tables."""
    exponents = ", ".join(f"{name}^{exponent}" for name, exponent in law.exponents.items())
    return "; ".join(part for part in (exponents, law.remark) if part)


def _draw(axes: Axes, results: Sequence[TheoryResult], variable: str, comparator: str) -> None:
    axes.set(xscale="log", yscale="log")
    for number, row in enumerate(dict.fromkeys(result.row for result in results)):
        colour = f"C{number % 10}"
        chosen = [result for result in results if result.row == row]
        x = np.array([VARIABLES[variable](result) for result in chosen])
        y = np.array([result.measure(f"regret_{comparator}") for result in chosen])
        law = regret_law(chosen, comparator, variable)
        drawable = (x > 0) & (y > 0)
        for schedule in dict.fromkeys(result.schedule for result in chosen):
            shown = drawable & np.array([result.schedule == schedule for result in chosen])
            axes.plot(x[shown], y[shown], _MARKERS.get(schedule, "x"), color=colour, markersize=5)
        label = f"{row}: {exponent_words(law)}"
        if law.exponents:
            line = np.geomspace(x[drawable].min(), x[drawable].max(), 20)
            axes.plot(line, law(**{variable: line}), color=colour, linewidth=1.2, label=label)
        else:
            axes.plot([], [], color=colour, label=label)
    axes.grid(alpha=0.3, which="both")


def _legend(axes: Axes) -> None:
    """Below the picture, where long remarks hide nothing."""
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)


def _guide(axes: Axes, exponent: float, name: str) -> None:
    """The slope that the theory promises, through the middle of the picture."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    line = np.array([left, right])
    middle = np.sqrt(left * right)
    axes.plot(line, np.sqrt(bottom * top) * (line / middle) ** exponent, ":", color="grey", label=name)
    axes.set(xlim=(left, right), ylim=(bottom, top))
