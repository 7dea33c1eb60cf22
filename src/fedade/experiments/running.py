"""Running an experiment into a folder that can always be continued."""

import hashlib
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import pyarrow as pa
import pyarrow.compute as pc
import torch

from fedade.core import storage, trace
from fedade.core.errors import FedadeError
from fedade.core.provenance import provenance
from fedade.experiments.settings import Experiment, experiment_from
from fedade.experiments.tracks import Report, Track, run_tracks
from fedade.reporting.figures import figures, save
from fedade.reporting.page import Page, render
from fedade.reporting.page.markup import origin, results_table
from fedade.reporting.page.scenes import Recording, Scene, complete, pack
from fedade.reporting.results import Result, result, rows


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


def run(experiment: Experiment, folder: Path, device: str, report: Report, jobs: int = 1) -> Run:
    """Run what is not yet done, then write trace, summary, figures and report page."""
    folder = folder.resolve()
    _claim(folder, experiment)
    with _alone(folder):
        storage.write_yaml(folder / "config.yaml", experiment.as_plain())
        methods = experiment.build_methods()
        if not (folder / "provenance.json").exists():
            settings = {name: method.model_dump(mode="json") for name, method in methods.items()}
            storage.write_json(folder / "provenance.json", provenance(device) | {"method_settings": settings})
        wanted = [Track(name, seed) for seed in experiment.seeds for name in experiment.methods]
        if not all(track.is_done(folder) for track in wanted):
            run_tracks(experiment, folder, device, jobs, report)
        tables = [trace.read(track.folder(folder) / "trace.parquet") for track in wanted]
        results = tuple(
            result(table, track.method, track.seed, methods[track.method].card.oracle, _seconds(table))
            for track, table in zip(wanted, tables, strict=True)
        )
        done = Run(folder, results)
        trace.write(folder / "trace.parquet", trace.concatenate(tables))
        storage.write_json(folder / "summary.json", done.as_plain())
        write_report(folder)
    return done


def _seconds(table: pa.Table) -> float:
    return float(table.schema.metadata[b"seconds"])


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
    results = _summarised(folder / "summary.json")
    table = complete(trace.read(folder / "trace.parquet"), folder / "trace.parquet")
    save(figures(table), folder / "figures")
    scenario = experiment.scenario
    content = Page(
        title=f"{scenario.dataset}: {scenario.kind} shift, schedule {scenario.schedule}",
        tables=[results_table(rows(results))],
        scenes=pack([Scene({}, [_recording(table, one) for one in results])]),
        config=experiment.as_plain(),
        command=f"fedade run {shlex.quote(str(folder / 'config.yaml'))}",
        facts={
            "clients": str(scenario.num_clients),
            "timesteps": str(scenario.num_timesteps),
            "samples per batch": str(scenario.samples),
            "model": scenario.model,
            "seeds": ", ".join(map(str, experiment.seeds)),
        },
        provenance=origin(_provenance(folder)),
    )
    storage.write_bytes(folder / "report.html", render(content).encode())
    return folder / "report.html"


def _provenance(folder: Path) -> dict[str, Any]:
    """What the run wrote down about itself; a page can do without."""
    path = folder / "provenance.json"
    return storage.read_json(path) if path.is_file() else {}


def _summarised(path: Path) -> list[Result]:
    try:
        return [Result(**one) for one in storage.read_json(path)["results"]]
    except (KeyError, TypeError) as error:
        raise FedadeError(f"{path} is no summary of this version ({error}); delete it and resume the run") from error


def _recording(table: pa.Table, one: Result) -> Recording:
    def read() -> pa.Table:
        return table.filter((pc.field("method") == one.method) & (pc.field("seed") == one.seed))

    return Recording(one.method, one.seed, one.oracle, read)


def check_device(device: str) -> str:
    """A device that PyTorch can use here."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise FedadeError("--device cuda: PyTorch finds no GPU here; use --device cpu")
    return device
