"""Pictures of a trace, of a search for constants, and of suites."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedade.core import storage, trace

Figures = dict[str, Figure]
FEW_TIMESTEPS = 30
"""With fewer, lines are drawn as they are: a moving mean would hide most of what happened."""
_MOVING_MEAN = 5
_SIGNALS = (("learning_rate", "learning rate η"), ("s_unc", "$S_{unc}$"), ("s_rep", "$S_{rep}$"))


class Chart(NamedTuple):
    """A picture of a run's trace, and the columns without which there is nothing to show."""

    draw: Callable[[pa.Table, Sequence[str]], Figure]
    """The trace and the names of its methods in, a figure out."""
    columns: frozenset[str] = frozenset()


def figures(table: pa.Table) -> Figures:
    """All charts that this trace can fill, by file name."""
    methods = list(dict.fromkeys(trace.column(table, "method").tolist()))
    there = set(table.column_names)
    return {name: chart.draw(table, methods) for name, chart in CHARTS.items() if chart.columns <= there}


def save(drawn: Figures, folder: Path) -> None:
    for name, figure in drawn.items():
        with storage.replacing(folder / f"{name}.png") as file:
            figure.savefig(file, format="png", dpi=130)


def accuracy_over_time(table: pa.Table, methods: Sequence[str]) -> Figure:
    """Accuracy after adaptation by timestep, with the middle half of the clients as a band."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.add_subplot()
    width = 1 if len(np.unique(trace.column(table, "timestep"))) < FEW_TIMESTEPS else _MOVING_MEAN
    for method in methods:
        chosen = trace.where(table, method=method)
        _plot(axes, chosen, 100 * trace.column(chosen, "accuracy_post").astype(float), method, (0.25, 0.75), width)
    axes.set(xlabel="timestep t", ylabel="accuracy after adaptation (%)")
    smoothing = f"moving mean of {width}; " if width > 1 else ""
    axes.set_title(f"Accuracy over time ({smoothing}band: middle half of the clients)", fontsize=10)
    if axes.lines:
        axes.legend(fontsize=8, ncols=2)
    axes.grid(alpha=0.3)
    return figure


def signals_over_time(table: pa.Table, methods: Sequence[str]) -> Figure:
    """Learning rates, where there are any, and the two signals by timestep, mean over clients."""
    shown = [(name, title) for name, title in _SIGNALS if name in table.column_names]
    figure = Figure(figsize=(8, 2 * len(shown)), layout="constrained")
    panels = figure.subplots(len(shown), 1, sharex=True)
    for panel, (name, title) in zip(panels, shown, strict=True):
        for method in methods:
            chosen = trace.where(table, method=method)
            _plot(panel, chosen, trace.column(chosen, name).astype(float), method, (0.1, 0.9))
        panel.set_ylabel(title)
        panel.grid(alpha=0.3)
    panels[0].set_title("Rates and signals (band: 8 of 10 clients)", fontsize=10)
    panels[0].legend(fontsize=8)
    panels[-1].set_xlabel("timestep t")
    return figure


def client_priors(table: pa.Table, methods: Sequence[str]) -> Figure:
    """True class distributions at the last timestep, and how well one method estimates them over time."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    last = trace.where(table, method=methods[0], seed=trace.column(table, "seed")[0])
    last = trace.where(last, timestep=trace.column(last, "timestep").max())
    image = left.imshow(trace.column(last, "true_prior").T, aspect="auto", cmap="viridis", vmin=0, vmax=1)
    left.set(xlabel="client", ylabel="class")
    left.set_title("True class distribution at the last timestep", fontsize=10)
    figure.colorbar(image, ax=left, shrink=0.8)
    if "prior" in table.column_names:
        for method in methods:
            chosen = trace.where(table, method=method)
            error = np.abs(trace.column(chosen, "prior") - trace.column(chosen, "true_prior")).sum(1)
            _plot(right, chosen, error, method)
        right.legend(fontsize=8)
    right.set(xlabel="timestep t", ylabel="L1 distance")
    right.set_title("Estimated against true class distribution", fontsize=10)
    right.grid(alpha=0.3)
    return figure


CHARTS: Mapping[str, Chart] = {
    "accuracy": Chart(accuracy_over_time),
    "priors": Chart(client_priors),
    "signals": Chart(signals_over_time, frozenset({"s_unc"})),
}
"""Every chart of a run by the name of its file. A new one is a function and a line here."""


def _plot(
    axes: Axes, table: pa.Table, values: NDArray[Any], label: str, band: Sequence[float] = (), width: int = 1
) -> None:
    """The mean of all clients and seeds by timestep, and a band of quantiles; nothing where nobody told a value."""
    told = np.isfinite(values)
    times, counts = np.unique(trace.column(table, "timestep")[told], return_counts=True)
    if not len(times):
        return
    order = np.argsort(trace.column(table, "timestep")[told], kind="stable")
    grouped = np.full((len(times), counts.max()), np.nan)
    grouped[np.arange(grouped.shape[1]) < counts[:, None]] = values[told][order]
    (line,) = axes.plot(times, _smoothed(np.nanmean(grouped, 1), width), label=label, linewidth=1.6)
    if band:
        low, high = (_smoothed(edge, width) for edge in np.nanquantile(grouped, band, axis=1))
        axes.fill_between(times, low, high, color=line.get_color(), alpha=0.1, linewidth=0)


def _smoothed(values: NDArray[Any], width: int) -> NDArray[Any]:
    width = min(width, len(values))
    padded = np.pad(values, (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.full(width, 1 / width), mode="valid")


def picture_of_trials(scores: Sequence[float], source: float, name: str) -> Figure:
    """Score of every trial, the best so far as a line, and what the deployed model has; lost trials leave a gap."""
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    numbers = range(1, len(scores) + 1)
    axes.plot(numbers, [100 * score for score in scores], "o", label="trial")
    axes.step(numbers, 100 * np.fmax.accumulate(scores), where="post", label="best so far")
    axes.axhline(100 * source, color="grey", linestyle="--", label="deployed model")
    axes.set_ylim(bottom=max(100 * source - 3, 0))
    axes.set(xlabel="trial", ylabel="accuracy on simulated drift, less harm, %", title=name)
    axes.legend()
    return figure


class Curve(NamedTuple):
    """Accuracy in percent against a setting: mean and standard deviation over seeds."""

    name: str
    settings: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]


class Panel(NamedTuple):
    """Curves over one setting."""

    setting: str
    curves: Sequence[Curve]


def schedules_over_time(weights: Mapping[str, Mapping[str, NDArray[Any]]]) -> Figure:
    """ω(t) by schedule (rows) and reading (columns)."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    variants = list(next(iter(weights.values())))
    panels = figure.subplots(len(weights), len(variants), sharex=True, sharey=True, squeeze=False)
    for row, (schedule, readings) in zip(panels, weights.items(), strict=True):
        for panel, (variant, values) in zip(row, readings.items(), strict=True):
            panel.step(np.arange(len(values)), values, where="post", linewidth=1.4)
            panel.set_ylim(-0.05, 1.05)
            panel.grid(alpha=0.3)
            if panel in panels[0]:
                panel.set_title(f"reading: {variant}", fontsize=10)
        row[0].set_ylabel(f"{schedule}: ω(t)")
    for panel in panels[-1]:
        panel.set_xlabel("timestep t")
    return figure


def client_distributions(priors: Mapping[float, NDArray[Any]]) -> Figure:
    """Target class distributions of the clients, `[C, K]` by Dirichlet factor; the area of a dot is the share."""
    figure = Figure(figsize=(10, 2.6 * len(priors)), layout="constrained")
    panels = figure.subplots(len(priors), 1, sharex=True, squeeze=False)[:, 0]
    for panel, (alpha, shares) in zip(panels, priors.items(), strict=True):
        clients, classes = np.indices(shares.shape)
        panel.scatter(clients, classes, s=60 * shares, c=classes, cmap="tab10", linewidths=0)
        panel.set_ylabel("class")
        panel.set_title(f"Dirichlet(α = {alpha:g})", fontsize=10)
    panels[-1].set_xlabel("client")
    return figure


def accuracy_against(panels: Sequence[Panel], title: str) -> Figure:
    """Accuracy against settings on log axes, side by side on one scale, with bars of one deviation."""
    figure = Figure(figsize=(4.2 * len(panels), 3.8), layout="constrained")
    drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(drawn, panels, strict=True):
        for curve in panel.curves:
            points = (curve.settings, curve.means, curve.deviations)
            axes.errorbar(*points, label=curve.name, marker="o", markersize=4, capsize=2)
        axes.set(xscale="log", xlabel=panel.setting)
        axes.grid(alpha=0.3)
        if panel.curves:
            axes.legend(fontsize=8)
    drawn[0].set_ylabel("accuracy after adaptation (%)")
    figure.suptitle(title, fontsize=10)
    return figure
