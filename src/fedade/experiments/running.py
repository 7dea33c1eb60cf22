"""Running an experiment into a folder that can always be continued."""

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import pyarrow as pa
import torch

from fedade.client_map import Vectorised, loop
from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.core.paths import cache_dir
from fedade.core.provenance import provenance
from fedade.core.scenario import Scenario
from fedade.core.seeds import Seeds
from fedade.core.threads import SMALL_NETWORK
from fedade.engine.clock import Clock, Maps, Rounds
from fedade.engine.track import run_track
from fedade.experiments.settings import Experiment, FederationSettings, experiment_from
from fedade.reporting.figures import figures, save
from fedade.reporting.page import page
from fedade.reporting.results import Result, result, rows
from fedade.scenarios import build_scenario

Report = Callable[[str, int, int], None]
"""Called with what is under way, how much of it is done, and how much there is."""

SAMPLES_AT_ONCE = 4000
"""Images in one forward pass on a CPU; more would only cost memory."""


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    results: tuple[Result, ...]

    def as_plain(self) -> dict[str, Any]:
        """What `--json` prints and `summary.json` holds."""
        return {"run_dir": str(self.folder), "results": [one.asdict() for one in self.results]}


def fingerprint(experiment: Experiment) -> str:
    """Eight characters that differ between different experiments."""
    text = json.dumps(experiment.as_plain(), sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


def run(experiment: Experiment, folder: Path, device: str, report: Report) -> Run:
    """Run what is not yet done, then write trace, summary, figures and report page."""
    folder = folder.resolve()
    _claim(folder, experiment)
    with _alone(folder):
        storage.write_yaml(folder / "config.yaml", experiment.as_plain())
        if not (folder / "provenance.json").exists():
            resolved = {name: method.model_dump(mode="json") for name, method in experiment.build_methods().items()}  # type: ignore[attr-defined]
            storage.write_json(folder / "provenance.json", provenance(device) | {"method_settings": resolved})
        tables, results = [], []
        for seed in experiment.seeds:
            for table, found in _seed_tracks(experiment, folder, device, seed, report):
                tables.append(table)
                results.append(found)
        done = Run(folder, tuple(results))
        trace.write(folder / "trace.parquet", trace.concatenate(tables))
        storage.write_json(folder / "summary.json", done.as_plain())
        write_report(folder)
    return done


def _seed_tracks(
    experiment: Experiment, folder: Path, device: str, seed: int, report: Report
) -> Iterator[tuple[pa.Table, Result]]:
    scenario: Scenario | None = None
    for name, method in experiment.build_methods().items():
        here = folder / "checkpoint" / f"{name}-{seed}"
        if (here / "trace.parquet").exists():
            table = trace.read(here / "trace.parquet")
        else:
            if scenario is None:
                scenario = build_scenario(
                    experiment.scenario,
                    seed,
                    device,
                    cache_dir(),
                    lambda done, of: report("pre-training", done, of),
                )
            clock = Clock(
                method,
                scenario,
                Rounds(experiment.federation.rounds, experiment.federation.participation),
                Seeds(seed),
                client_maps(experiment.federation, scenario, experiment.scenario.samples, device),
                experiment.federation.score_fresh,
            )
            title = name if len(experiment.seeds) == 1 else f"{name}, seed {seed}"
            table = run_track(
                clock,
                here,
                {"method": name, "seed": seed},
                lambda done, title=title: report(title, done, experiment.scenario.num_timesteps),  # type: ignore[misc]
            )
        seconds = float(table.schema.metadata[b"seconds"])
        yield table, result(table, name, seed, method.card.oracle, seconds)


def client_maps(federation: FederationSettings, scenario: Scenario, samples: int, device: str) -> Maps:
    """Which map runs what. `auto` follows what was measured: only big networks on a CPU want the loop."""
    if federation.client_map == "loop":
        return Maps(loop, loop)
    chunk = None if device != "cpu" else max(1, SAMPLES_AT_ONCE // samples)
    together = Vectorised(chunk)
    size = sum(value.numel() for value in scenario.deployment.parameters.values())
    alone = federation.client_map == "auto" and device == "cpu" and size > SMALL_NETWORK
    return Maps(together, loop if alone else Vectorised())


def _claim(folder: Path, experiment: Experiment) -> None:
    """Refuse a folder that holds another run."""
    said = folder / "config.yaml"
    if not said.exists():
        if folder.exists() and any(folder.iterdir()):
            raise FedadeError(f"{folder} is not empty and holds no run; choose another folder with --out")
        return
    old, new = storage.read_yaml(said), experiment.as_plain()
    if old != new:
        key, before, after = _first_difference(old, new)
        raise FedadeError(
            f"{folder} holds another run ({key}: {before!r} there, {after!r} now); "
            "choose another folder with --out, or continue that one with --resume"
        )


def _first_difference(old: Any, new: Any, path: str = "") -> tuple[str, Any, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            if old.get(key) != new.get(key):
                return _first_difference(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    return path, old, new


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two processes must not write one folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock", timeout=0):
            yield
    except filelock.Timeout as error:
        raise FedadeError(f"{folder} is in use by another process; wait for it or choose another --out") from error
    except OSError as error:
        raise FedadeError(f"cannot write to {folder}: {error.strerror}; choose another folder with --out") from error


def write_report(folder: Path) -> Path:
    """Figures and report page of a finished run, from its trace and summary alone."""
    if not (folder / "summary.json").is_file():
        raise FedadeError(
            f"{folder} holds no finished run (no summary.json); finish it with `fedade run --resume {folder}`"
        )
    experiment = experiment_from(storage.read_yaml(folder / "config.yaml"))
    found = storage.read_json(folder / "summary.json")["results"]
    drawn = figures(trace.read(folder / "trace.parquet"))
    save(drawn, folder / "figures")
    scenario = experiment.scenario
    content = page(
        f"{scenario.dataset}: {scenario.kind} shift, schedule {scenario.schedule}",
        rows([Result(**one) for one in found]),
        drawn,
        experiment.as_plain(),
        f"fedade run {shlex.quote(str(folder / 'config.yaml'))}",
    )
    storage.write_bytes(folder / "report.html", content.encode())
    return folder / "report.html"


def check_device(device: str) -> str:
    """A device that PyTorch can use here."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise FedadeError("--device cuda: PyTorch finds no GPU here; use --device cpu")
    return device
