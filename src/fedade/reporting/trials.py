"""A picture of a search for constants."""

from collections.abc import Sequence

from matplotlib.figure import Figure


def picture_of_trials(scores: Sequence[float], source: float, name: str) -> Figure:
    """Score of every trial, the best so far as a line, and what the deployed model has; lost trials leave a gap."""
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    best, best_so_far = float("-inf"), []
    for score in scores:
        best = score if score > best else best
        best_so_far.append(100 * best)
    numbers = range(1, len(scores) + 1)
    axes.plot(numbers, [100 * score for score in scores], "o", label="trial")
    axes.step(numbers, best_so_far, where="post", label="best so far")
    axes.axhline(100 * source, color="grey", linestyle="--", label="deployed model")
    floor = 100 * source - 3
    axes.set_ylim(bottom=max(floor, 0))
    axes.set(xlabel="trial", ylabel="accuracy on simulated drift, less harm, %", title=name)
    axes.legend()
    return figure
