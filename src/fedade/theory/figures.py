"""Regret against time and against the cumulative signal, on log axes, with fitted exponents."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedade.theory.results import VARIABLES, PowerLaw, TheoryResult, regret_law

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
