"""Figures of suites: schedules, how clients differ, and accuracy against a setting."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray


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
        _draw(axes, panel)
    drawn[0].set_ylabel("accuracy after adaptation (%)")
    figure.suptitle(title, fontsize=10)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    for curve in panel.curves:
        axes.errorbar(
            curve.settings, curve.means, curve.deviations, label=curve.name, marker="o", markersize=4, capsize=2
        )
    axes.set(xscale="log", xlabel=panel.setting)
    axes.grid(alpha=0.3)
    if panel.curves:
        axes.legend(fontsize=8)
