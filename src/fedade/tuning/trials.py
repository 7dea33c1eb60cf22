"""Trying a method's constants on simulated drift, and keeping what was found."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fedade.core import storage
from fedade.core.deployment import Deployment, Reference
from fedade.core.errors import FedadeError
from fedade.core.identity import digest
from fedade.core.method import Method
from fedade.core.scenario import Scenario
from fedade.core.trace import Rows
from fedade.methods.fed_ade import FedAde
from fedade.methods.source import Source
from fedade.parts.rates import EVEN, Paces, RateBounds, SignalRange
from fedade.scenarios.settings import ScenarioSettings
from fedade.tuning.drift import drift_kind, schedule_of, simulated_drift, without_shift
from fedade.tuning.searches import Settings, is_tunable, stages

VERSION = 3
"""Part of every key: raised when the same method and deployment would be given other constants."""
TOLERATED = 0.001
"""Loss of accuracy without any shift."""
Run = Callable[[Method, Scenario], Rows]
"""Runs a method through a scenario."""
Progress = Callable[[int], None]
SomeMethod = TypeVar("SomeMethod", bound=Method)


@dataclass(frozen=True)
class Attempt:
    """One attempt: what was set, and the mean accuracy over simulated clients and time, less what clients without a
    shift lost; NaN if it diverged."""

    settings: Settings
    accuracy: float


@dataclass(frozen=True)
class Tuning:
    """What was chosen for a method, and how."""

    chosen: Settings
    trials: tuple[Attempt, ...]
    source: float
    """Accuracy of the deployed model on the same drift."""

    def save(self, path: Path) -> None:
        """Store it as JSON."""
        trials = [{"settings": trial.settings, "accuracy": _or_none(trial.accuracy)} for trial in self.trials]
        storage.write_json(path, {"chosen": self.chosen, "source": self.source, "trials": trials})

    @classmethod
    def load(cls, path: Path) -> "Tuning":
        """Read what `save` wrote."""
        stored = storage.read_json(path)
        trials = tuple(Attempt(trial["settings"], _or_nan(trial["accuracy"])) for trial in stored["trials"])
        return cls(stored["chosen"], trials, stored["source"])


def tune(method: Method, scenario: Scenario, run: Run, progress: Progress | None = None) -> Tuning:
    """Constants that do best on simulated drift, stage by stage; a trial that diverges is lost, not the search."""
    if not is_tunable(method):
        raise FedadeError(f"{type(method).__name__} has no constants to calibrate; set constants to 'set'")
    method = method.model_copy(update={"constants": "set"})
    deployed = run(Source(), scenario)
    source = _accuracy(deployed)
    best, best_accuracy, trials = method, -math.inf, []
    chosen: Settings = {}
    if isinstance(method, FedAde):
        method = method.model_copy(update={"anchor": 0.0, "paces": EVEN})  # whatever was set before
        chosen = {"signal": signal_range(method, scenario, run)}
        best = method.model_copy(update=chosen)
    for stage in stages(method, scenario):
        start = best
        for settings in stage.candidates(start):
            candidate = start.model_copy(update=settings)
            try:
                rows = run(candidate, scenario)
                accuracy = _accuracy(rows) - _harm(rows, deployed)
            except FedadeError:
                accuracy = math.nan
            trials.append(Attempt(_plain({**chosen, **_changes(method, candidate)}), accuracy))
            if progress is not None:
                progress(len(trials))
            if accuracy > best_accuracy + (stage.worth if trials[:-1] else 0):
                best, best_accuracy = candidate, accuracy
    if best_accuracy == -math.inf:
        raise FedadeError(
            f"no trial of {type(method).__name__} survived on simulated drift: every rate diverged; set constants to "
            "'set' and choose its rate by hand"
        )
    if isinstance(method, FedAde) and best_accuracy < source:
        best = best.model_copy(update={"rate": RateBounds(low=0, mid=0, high=0)})  # better to stand still
    return Tuning(_plain({**chosen, **_changes(method, best)}), tuple(trials), source)


def signal_range(method: FedAde, scenario: Scenario, run: Run) -> SignalRange:
    """Where S lies while nothing moves (below its 95 % quantile), and where while data drift (up to 99 %)."""
    still = method.model_copy(
        update={
            "rate": RateBounds(low=0, mid=0, high=0),
            "paces": Paces(shared=0),
            "personal_step": "all",
            "personal_epochs": 0,
        }
    )
    resting, drifting = (run(still, some)["s"] for some in (without_shift(scenario), scenario))
    floor = float(np.quantile(resting, 0.95))
    return SignalRange(floor=min(floor, 0.9), top=min(1.0, max(float(np.quantile(drifting, 0.99)), 1.5 * floor, 1e-3)))


def fitted(method: SomeMethod, tuning: Tuning) -> SomeMethod:
    """The method with the chosen constants wherever its settings name none."""
    found = type(method).model_validate({**method.model_dump(), **tuning.chosen, "constants": "set"})
    kept = {name: getattr(method, name) for name in method.model_fields_set if name != "constants"}
    return found.model_copy(update=kept)


def tuning_key(method: Method, deployment: str, settings: ScenarioSettings, protocol: Settings) -> str:
    """A name that two tunings share only if they would find the same."""
    own = method.model_dump(mode="json", exclude={"constants", "pace", "measured_rates", "rate"})
    expected = settings.model_dump(
        mode="json",
        include={"kind", "num_clients", "num_timesteps", "samples", "alpha", "supports", "initial", "reference"},
    )
    expected["kind"] = drift_kind(settings)
    content = [VERSION, type(method).__name__, own, expected, settings.reference_size, protocol, deployment]
    return digest(json.dumps(content, sort_keys=True).encode())[:16]


def tuned_from_store(
    method: Method,
    deployment: Deployment,
    held_out: Reference,
    settings: ScenarioSettings,
    protocol: Settings,
    run: Run,
    store: Path,
    progress: Progress | None = None,
) -> Tuning:
    """The tuning of a method for a deployment: read from the store if it is there, else found and stored."""
    path = store / f"{tuning_key(method, deployment.digest, settings, protocol)}.tuning.json"
    if not path.exists():
        adaptive = method.model_copy(update={"pace": "adaptive"}) if isinstance(method, FedAde) else method
        tune(adaptive, simulated_drift(deployment, held_out, settings), run, progress).save(path)
    return Tuning.load(path)


def _accuracy(rows: Rows) -> float:
    return float(np.mean(rows["accuracy_post"]))


def _harm(rows: Rows, deployed: Rows) -> float:
    """What clients whose data stay as they were lose to the deployed model, beyond what is worth a word.

    It counts once more in full: on average a gain elsewhere would hide it.
    """
    resting = np.array([schedule_of(client) is None for client in rows["client"].tolist()])
    if not resting.any():
        return 0.0
    lost = float((deployed["accuracy_post"][resting] - rows["accuracy_post"][resting]).mean())
    return max(0.0, lost - TOLERATED)


def _changes(before: Method, after: Method) -> Settings:
    """Settings in which two configurations of a method differ."""
    return {name: value for name, value in after if value != getattr(before, name)}


def _plain(settings: Settings) -> Settings:
    """Settings as they are written to files."""
    return {name: value.model_dump() if hasattr(value, "model_dump") else value for name, value in settings.items()}


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _or_nan(value: Any) -> float:
    return math.nan if value is None else float(value)
