"""Trying a method's constants on simulated drift, and keeping what was found."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

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

VERSION = 4
"""Part of every key: raised when the same method and deployment would be given other constants."""
TOLERATED = 0.001
"""Loss of accuracy without any shift."""
HARM = 3.0
"""How much more than a gain elsewhere a further loss counts."""
RunTrials = Callable[[Sequence[Method], Scenario], Iterable[Rows | FedadeError]]
"""Runs methods through a scenario, each for itself: its rows, or why there are none."""
TrialProgress = Callable[[int], None]
SomeMethod = TypeVar("SomeMethod", bound=Method)


@dataclass(frozen=True)
class Attempt:
    """One attempt: what was set, how accurate it was where data drifted, and what clients without a shift gained by it
    (negative: lost); NaN if it diverged."""

    settings: Settings
    accuracy: float
    at_rest: float

    @property
    def score(self) -> float:
        """What is compared: accuracy, less what adapting costs where nothing happens."""
        return self.accuracy - HARM * max(0.0, -self.at_rest - TOLERATED)

    def as_plain(self) -> dict[str, Any]:
        """As JSON has it, which knows no NaN."""
        figures = {"accuracy": self.accuracy, "at_rest": self.at_rest, "score": self.score}
        plain = {name: None if math.isnan(value) else value for name, value in figures.items()}
        return {**plain, "settings": self.settings}


@dataclass(frozen=True)
class Tuning:
    """What was chosen for a method, and how."""

    chosen: Settings
    trials: tuple[Attempt, ...]
    source: float
    """Accuracy of the deployed model where the same data drifted."""

    def save(self, path: Path) -> None:
        trials = [trial.as_plain() for trial in self.trials]
        storage.write_json(path, {"chosen": self.chosen, "source": self.source, "trials": trials})

    @classmethod
    def load(cls, path: Path) -> "Tuning":
        stored = storage.read_json(path)
        trials = tuple(
            Attempt(trial["settings"], _or_nan(trial["accuracy"]), _or_nan(trial["at_rest"]))
            for trial in stored["trials"]
        )
        return cls(stored["chosen"], trials, stored["source"])


def tune(method: Method, scenario: Scenario, run: RunTrials, progress: TrialProgress | None = None) -> Tuning:
    """Constants that do best on simulated drift, stage by stage; a trial that diverges is lost, not the search."""
    if not is_tunable(method):
        raise FedadeError(f"{type(method).__name__} has no constants to calibrate; leave it as it is")
    method = method.model_copy(update={"constants": "set"})
    deployed = _rows_of(Source(), scenario, run)
    best, best_score, trials = method, -math.inf, []
    chosen: Settings = {}
    if isinstance(method, FedAde):
        method = method.model_copy(update={"anchor": 0.0, "centred": False, "paces": EVEN})  # whatever was set before
        chosen = {"signal": signal_range(method, scenario, run)}
        best = method.model_copy(update=chosen)
    for stage in stages(method, scenario):
        candidates = [best.model_copy(update=settings) for settings in stage.candidates(best)]
        for candidate, rows in zip(candidates, run(candidates, scenario), strict=True):
            accuracy, at_rest = (math.nan,) * 2 if isinstance(rows, FedadeError) else _judged(rows, deployed)
            trials.append(Attempt(_plain({**chosen, **_changes(method, candidate)}), accuracy, at_rest))
            if progress is not None:
                progress(len(trials))
            if trials[-1].score > best_score + (stage.worth if trials[:-1] else 0):
                best, best_score = candidate, trials[-1].score
    source, _ = _judged(deployed, deployed)
    if best_score == -math.inf:
        raise FedadeError(
            f"no trial of {type(method).__name__} survived on simulated drift: every rate diverged; set constants to "
            "'set' and choose its rate by hand"
        )
    if isinstance(method, FedAde) and best_score < source:
        best = best.model_copy(update={"rate": RateBounds(low=0, mid=0, high=0)})  # better to stand still
    return Tuning(_plain({**chosen, **_changes(method, best)}), tuple(trials), source)


def signal_range(method: FedAde, scenario: Scenario, run: RunTrials) -> SignalRange:
    """Where S lies while nothing moves (below its 95 % quantile), and where while data drift (up to 99 %)."""
    nothing = {"rate": RateBounds(low=0, mid=0, high=0), "paces": Paces(shared=0), "personal_epochs": 0}
    still = method.model_copy(update={**nothing, "personal_step": "all"})
    resting, drifting = (_rows_of(still, where, run) for where in (without_shift(scenario), scenario))
    floor = float(np.quantile(resting["s"], 0.95))
    highest = float(np.quantile(drifting["s"][_drifts(drifting)], 0.99))
    return SignalRange(floor=min(floor, 0.9), top=min(1.0, max(highest, 1.5 * floor, 1e-3)))


def fitted(method: SomeMethod, tuning: Tuning) -> SomeMethod:
    """The method with the chosen constants wherever its settings name none."""
    found = type(method).model_validate({**method.model_dump(), **tuning.chosen, "constants": "set"})
    kept = {name: getattr(method, name) for name in method.model_fields_set if name != "constants"}
    return found.model_copy(update=kept)


def tuning_key(method: Method, deployment: str, settings: ScenarioSettings, protocol: Settings) -> str:
    """A name that two tunings share only if they would find the same."""
    own = method.model_dump(mode="json", exclude={"constants", "pace", "measured_rates", "rate"})
    known = {"kind", "num_clients", "num_timesteps", "samples", "alpha", "supports", "initial", "reference"}
    expected = settings.model_dump(mode="json", include=known)
    expected["kind"] = drift_kind(settings)
    content = [VERSION, type(method).__name__, own, expected, settings.reference_size, protocol, deployment]
    return digest(json.dumps(content, sort_keys=True).encode())[:16]


def tuned_from_store(
    method: Method,
    deployment: Deployment,
    held_out: Reference,
    settings: ScenarioSettings,
    run: RunTrials,
    path: Path,
    progress: TrialProgress | None = None,
) -> Tuning:
    """The tuning of a method for a deployment: read from the file if it is there, else found and stored."""
    if not path.exists():
        adaptive = method.model_copy(update={"pace": "adaptive"}) if isinstance(method, FedAde) else method
        tune(adaptive, simulated_drift(deployment, held_out, settings), run, progress).save(path)
    return Tuning.load(path)


def _rows_of(method: Method, scenario: Scenario, run: RunTrials) -> Rows:
    (rows,) = run([method], scenario)
    if isinstance(rows, FedadeError):
        raise rows
    return rows


def _judged(rows: Rows, deployed: Rows) -> tuple[float, float]:
    """Mean accuracy where data drift, and what clients whose data stay as they were gain over the deployed model."""
    accuracy, drifts = rows["accuracy_post"], _drifts(rows)
    if drifts.all():
        return float(accuracy.mean()), 0.0
    gained = accuracy[~drifts] - deployed["accuracy_post"][~drifts]
    return float(accuracy[drifts].mean()), float(gained.mean())


def _drifts(rows: Rows) -> NDArray[np.bool_]:
    """Which rows are of clients whose data move."""
    return np.array([schedule_of(client) is not None for client in rows["client"].tolist()])


def _changes(before: Method, after: Method) -> Settings:
    return {name: value for name, value in after if value != getattr(before, name)}


def _plain(settings: Settings) -> Settings:
    return {name: value.model_dump() if hasattr(value, "model_dump") else value for name, value in settings.items()}


def _or_nan(value: Any) -> float:
    return math.nan if value is None else float(value)
