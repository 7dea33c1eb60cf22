"""How well accuracy is estimated without labels: every estimator and the alarm, on streams of `accuracy_streams.py`.

python research/accuracy_estimators.py --streams DIR --out docs/results/accuracy-estimators.csv

Prints and stores, by predictions (adapted by fed-ade-plus, or unadapted), kind of shift and estimator: windows of 500
samples, their mean accuracy, the mean absolute error and the bias in points, and of the monitor how often its interval
held the truth and in how many windows there was an alarm. Of sudden shifts that cost 10 points or more: how many trials
raised the alarm within five batches, and the delay in batches.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from accuracy_baselines import (
    accuracy_under,
    average_thresholded_confidence,
    difference_of_confidences,
    isotonic,
    isotonic_chances,
    negative_entropy,
    threshold,
)
from fedade.adapter.accuracy_estimation import confidence, correct
from fedade.adapter.appearance import HeldOutAppearance
from fedade.adapter.monitoring import Estimate, FittedMonitor
from fedade.adapter.simulated_drift import Rehearsal
from fedade.maths.priors.reweighting import fit_temperature

CLEAN, WINDOW, LOSS, IN_TIME = 8, 10, 0.10, 5
"""Batches before an onset; of a window; the loss that must be noticed, and in how many batches."""
Estimator = Callable[[Tensor, Mapping[str, Tensor]], Tensor]
"""Accuracy of each batch, `[T]`, of predictions `[T, n, K]` and plans."""


class HeldOut(NamedTuple):
    """Calibrated predictions and labels, and what inputs look like."""

    probabilities: Tensor
    labels: Tensor
    temperature: Tensor
    seen: HeldOutAppearance
    looks: Tensor
    """`[m, D]`: of each input."""


class Stream(NamedTuple):
    """What one client saw, said and hid."""

    split: str
    kind: str
    steps: dict[str, Tensor]


def read(path: Path) -> dict[str, Tensor]:
    """Tensors by name."""
    return {name: torch.from_numpy(value) for name, value in np.load(path).items()}


def held_out(folder: Path) -> HeldOut:
    """The held-out set."""
    stored = read(folder / "held-out.npz")
    temperature = fit_temperature(stored["logits"], stored["labels"].long())
    seen = HeldOutAppearance(*(stored[name] for name in HeldOutAppearance._fields))
    probabilities = (stored["logits"] / temperature).softmax(-1)
    return HeldOut(probabilities, stored["labels"].long(), temperature, seen, stored["looks"])


def streams(folder: Path) -> list[Stream]:
    """All streams that are there."""
    paths = sorted(folder.glob("*.*.npz"))
    return [Stream(*path.name.split(".")[:2], read(path)) for path in paths]


def estimators(known: HeldOut, corrects: bool) -> dict[str, Estimator]:
    """Those that need the held-out set alone; `corrects`: predictions are corrected for the plan's prior."""
    probabilities, labels, *_ = known
    right, mean = correct(probabilities, labels), probabilities.mean(0)
    accuracy, sure = right.float().mean(), confidence(probabilities)
    by_confidence, by_entropy = threshold(sure, right), threshold(negative_entropy(probabilities), right)
    knots = isotonic(sure, right)

    def under(steps: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        both = [accuracy_under(prior, probabilities, labels, mean) for prior in steps["prior"]]
        return torch.stack([one[0] for one in both]), torch.stack([one[1] for one in both])

    plain: dict[str, Estimator] = {
        "confidence (temperature)": lambda p, _: confidence(p).mean(-1),
        "confidence (isotonic)": lambda p, _: isotonic_chances(confidence(p), knots).mean(-1),
        "ATC confidence": lambda p, _: average_thresholded_confidence(confidence(p), by_confidence),
        "ATC entropy": lambda p, _: average_thresholded_confidence(negative_entropy(p), by_entropy),
        "DoC": lambda p, _: difference_of_confidences(confidence(p), sure.mean(), accuracy),
    }
    if not corrects:
        return plain
    return {
        **plain,
        "prior-weighted classes": lambda _, steps: under(steps)[0],
        "DoC under the prior": lambda p, steps: difference_of_confidences(confidence(p), *under(steps)[::-1]),
    }


def _of_looks(seen: HeldOutAppearance) -> HeldOutAppearance:
    """The same for inputs that are stored as what they look like, in held-out units: a table of them."""
    return seen._replace(centre=torch.zeros_like(seen.centre), deviation=torch.ones_like(seen.deviation))


def monitored(
    monitor: FittedMonitor, probabilities: Tensor, plans: Mapping[str, Tensor], appearance: Tensor
) -> list[Estimate]:
    """The monitor's estimates after every batch."""
    state, estimates = monitor.begin(), []
    for step, batch in enumerate(probabilities):
        plan = {name: plans[name][step] for name in plans}
        looked_at = appearance[step] if len(monitor.seen.centre) else None
        state, estimate = monitor.update(state, batch, plan, looked_at)
        estimates.append(estimate)
    return estimates


def monitors(folder: Path, known: HeldOut, corrects: bool) -> dict[str, FittedMonitor]:
    """The product's, with and without rehearsed drift."""
    stored = read(folder / ("rehearsal.npz" if corrects else "rehearsal-plain.npz"))
    if not corrects:  # the method `source` does not calibrate
        stored["probabilities"] = (stored["probabilities"].log() / known.temperature).softmax(-1)
    return {
        "monitor": FittedMonitor.fit(
            *known[:2], rehearsal=Rehearsal(**stored), inputs=known.looks, seen=_of_looks(known.seen)
        ),
        "monitor without rehearsal": FittedMonitor.fit(*known[:2]),
    }


def windows(values: Tensor) -> Tensor:
    """Means over whole windows."""
    return values[: len(values) // WINDOW * WINDOW].view(-1, WINDOW).mean(1)


Row = tuple[str, str, str, str, str, float]
Trials = defaultdict[tuple[str, str, str], list[tuple[Tensor, Tensor, Tensor, Tensor]]]
"""Of each stream by split, kind and estimator: true accuracy and estimate of each window, whether the interval held the
former and how wide it was, and per batch whether there was an alarm."""


def rows(folder: Path) -> Iterator[Row]:
    """split, predictions, kind, estimator, measure, value."""
    known, all_streams = held_out(folder), streams(folder)
    for predictions in ("adapted", "plain"):
        corrects = predictions == "adapted"
        simple, watching = estimators(known, corrects), monitors(folder, known, corrects)
        trials: Trials = defaultdict(list)
        onsets = defaultdict(list)
        for split, kind, steps in all_streams:
            probabilities = steps[predictions]
            plans = {"prior": steps["prior"]} if corrects else {}
            actual = correct(probabilities, steps["labels"].long()).float().mean(-1)
            truth = windows(actual)
            for name, monitor in watching.items():
                said = monitored(monitor, probabilities, plans, steps["appearance"])
                raised = torch.stack([one.alarm for one in said])
                if kind == "onset":
                    onsets[split, kind, name].append((actual[:CLEAN].mean() - actual[CLEAN:].mean(), raised))
                    continue
                ends = said[WINDOW - 1 :: WINDOW]
                low, high = torch.stack([one.interval for one in ends]).unbind(-1)
                estimates = torch.stack([one.estimated_accuracy for one in ends])
                held = torch.stack([(low <= truth) & (truth <= high), high - low], -1)
                trials[split, kind, name].append((truth, estimates, held, raised))
            for name, estimator in simple.items() if kind != "onset" else ():
                estimates = windows(estimator(probabilities, plans))
                trials[split, kind, name].append((truth, estimates, truth[:0], truth[:0]))
        for (split, kind, name), found in trials.items():
            for measure, value in accuracy_measures(found).items():
                yield split, predictions, kind, name, measure, value
        for (split, kind, name), found in onsets.items():
            for measure, value in onset_measures(found).items():
                yield split, predictions, kind, name, measure, value


def accuracy_measures(trials: list[tuple[Tensor, Tensor, Tensor, Tensor]]) -> dict[str, float]:
    """Of the streams of one kind."""
    truth, estimates, covered, _ = (torch.cat(column).double() for column in zip(*trials, strict=True))
    errors = 100 * (estimates - truth)
    measures = {
        "windows": len(errors),
        "accuracy": 100 * truth.mean().item(),
        "mean absolute error": errors.abs().mean().item(),
        "bias": errors.mean().item(),
    }
    if len(covered):
        alarmed = torch.cat([windows(one[3].double()) for one in trials]) > 0
        measures |= {
            "covered by the interval": covered[:, 0].mean().item(),
            "width of the interval": 100 * covered[:, 1].mean().item(),
            "windows with an alarm": alarmed.double().mean().item(),
        }
    return measures


def onset_measures(trials: list[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Of sudden shifts: those that cost 10 points or more."""
    delays = [delay(raised) for loss, raised in trials if loss >= LOSS]
    return {
        "raised before the shift": float(np.mean([raised[:CLEAN].any() for _, raised in trials])),
        "trials that lost 10 points": len(delays),
        "raised within 5 batches": float(np.mean([one <= IN_TIME for one in delays])) if delays else float("nan"),
        "median delay in batches": float(np.median(delays)) if delays else float("nan"),
        "longest delay in batches": max(delays, default=float("nan")),
    }


def delay(raised: Tensor) -> float:
    """Batches from the shift to the first alarm; infinite without one."""
    after = raised[CLEAN:].nonzero()
    return float(after[0] + 1) if len(after) else float("inf")


def main() -> None:
    """Write the table and print it."""
    words = argparse.ArgumentParser()
    words.add_argument("--streams", type=Path, required=True)
    words.add_argument("--out", type=Path, required=True)
    said = words.parse_args()
    torch.set_num_threads(1)
    with said.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["split", "predictions", "kind", "estimator", "measure", "value"])
        for *words_of_row, value in rows(said.streams):
            table.writerow([*words_of_row, f"{value:.3f}"])
            print(*words_of_row, f"{value:.3f}", sep="  ")


if __name__ == "__main__":
    main()
