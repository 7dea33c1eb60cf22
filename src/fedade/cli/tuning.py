"""`fedade tune` and `fedade pretrain`: what is done for a model before it is deployed."""

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedade.cli.options import DEFAULT, DataDir, Device, Json, Set, What, loading, writable_file
from fedade.core.errors import FedadeError

if TYPE_CHECKING:
    from fedade.tuning.trials import Tuning

KINDS = (".svg", ".png", ".pdf")


def _picture(path: Path | None) -> Path | None:
    if path is not None and path.suffix not in KINDS:
        raise FedadeError(f"--picture {path}: name a file that ends in {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    return writable_file(path)


Picture = Annotated[
    Path | None,
    typer.Option(
        "--picture", callback=_picture, help="Draw the trials into this file (.svg, .png or .pdf).", dir_okay=False
    ),
]
MethodName = Annotated[str, typer.Option("--method", "-m", help="Whose constants to find.")]


def tune_command(
    what: What = DEFAULT,
    method: MethodName = "fed-ade",
    set_: Set = None,
    device: Device = None,
    data_dir: DataDir = None,
    picture: Picture = None,
    json_: Json = False,
) -> None:
    """Find a method's constants for a deployed model, on drift simulated from held-out labelled data alone."""
    with loading():
        from fedade.cli.choosing import named_settings
        from fedade.experiments.settings import experiment_from

        settings = named_settings(what, [*(set_ or []), f"{method}.constants=calibrated"], data_dir, device)
        experiment = experiment_from({**settings, "methods": [method]})
        from fedade.cli.progress import cell_bars
        from fedade.core import storage
        from fedade.products.run_folder import check_device
        from fedade.reporting.figures import picture_of_trials
        from fedade.runner.work import Worker
    experiment = experiment.of_one(experiment.entry, experiment.seeds[0])
    check_device(experiment.execution.device)
    begun = time.monotonic()
    with cell_bars("tune", quiet=json_) as listener:
        tuning = Worker(listener).tuning(experiment.build_method(), experiment)
    if picture is not None:
        drawn = picture_of_trials([trial.score for trial in tuning.trials], tuning.source, method)
        with storage.replacing(picture) as file:
            drawn.savefig(file, format=picture.suffix[1:])
    if json_:
        trials = [trial.as_plain() for trial in tuning.trials]
        content = {"method": method, "chosen": tuning.chosen, "source": tuning.source, "trials": trials}
        typer.echo(json.dumps({**content, "seconds": round(time.monotonic() - begun, 1)}))
        return
    Console().print(_table(tuning, method))
    typer.echo(f"chosen, and used wherever {method}.constants is calibrated:")
    typer.echo(json.dumps({method: tuning.chosen}))


def _table(tuning: "Tuning", method: str) -> Table:
    table = Table(title=f"{method} on simulated drift; the deployed model has {100 * tuning.source:.2f} %")
    for name in ("trial", "where data drift", "gain at rest", "score"):
        table.add_column(name, justify="right")
    table.add_column("settings")
    for number, trial in enumerate(tuning.trials, 1):
        figures = ("diverged", "", "")
        if not math.isnan(trial.accuracy):
            figures = (f"{100 * trial.accuracy:.2f}", f"{100 * trial.at_rest:+.2f}", f"{100 * trial.score:.2f}")
        chosen = trial.settings == tuning.chosen
        table.add_row(str(number), *figures, _in_words(trial.settings), style="bold" if chosen else None)
    return table


def _in_words(settings: dict[str, Any]) -> str:
    """Settings in a line, without those that all trials share."""
    own = {name: value for name, value in settings.items() if not name.startswith("signal")}
    nested = {name: value.items() for name, value in own.items() if isinstance(value, dict)}
    own |= {name: " ".join(f"{key} {number:.3g}" for key, number in pairs) for name, pairs in nested.items()}
    return "; ".join(f"{name}: {value}" for name, value in own.items())


def pretrain_command(
    what: What = DEFAULT, set_: Set = None, device: Device = None, data_dir: DataDir = None, json_: Json = False
) -> None:
    """Train and store the model that an experiment deploys; runs of the same settings then find it ready."""
    with loading():
        from fedade.cli.choosing import named_settings
        from fedade.experiments.settings import experiment_from

        experiment = experiment_from(named_settings(what, set_, data_dir, device))
        from fedade.cli.progress import progress_bars
        from fedade.core.paths import cache_dir
        from fedade.products.run_folder import check_device
        from fedade.scenarios.building import build_deployment
    begun = time.monotonic()
    with progress_bars(quiet=json_) as report:
        deployment = build_deployment(
            experiment.scenario,
            check_device(experiment.execution.device),
            cache_dir(),
            lambda done, of: report("pre-training", done, of),
        )
    found = {
        "model": experiment.scenario.model,
        "dataset": experiment.scenario.dataset,
        "parameters": sum(value.numel() for value in deployment.parameters.values()),
        "accuracy_held_out": float(deployment.accuracy),
        "temperature": float(deployment.temperature),
        "seconds": round(time.monotonic() - begun, 2),
    }
    told = (
        "{model} on {dataset}: {accuracy_held_out:.2%} on held-out samples, temperature {temperature:.2f}, {seconds} s"
    )
    typer.echo(json.dumps(found) if json_ else told.format(**found))
