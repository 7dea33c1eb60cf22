"""`fedade run`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedade.cli.options import (
    DEFAULT,
    DataDir,
    Device,
    Json,
    Set,
    Track,
    Watch,
    What,
    loading,
    terminal_table,
    writable_folder,
)
from fedade.core.errors import FedadeError

if TYPE_CHECKING:
    from fedade.experiments.settings import Experiment
    from fedade.products.run_folder import Run


def run_command(
    what: What = DEFAULT,
    method: Annotated[list[str] | None, typer.Option(help="Method to run; repeatable.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Seed; repeatable.")] = None,
    out: Annotated[
        Path | None, typer.Option(callback=writable_folder, help="Folder of the run.", show_default="runs/NAME-HASH")
    ] = None,
    set_: Set = None,
    device: Device = None,
    jobs: Annotated[int, typer.Option(min=1, help="Methods and seeds to run at the same time.")] = 1,
    data_dir: DataDir = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    track: Track = None,
    watch: Watch = False,
    json_: Json = False,
) -> None:
    """Run methods on a scenario; without arguments, the main comparison on the default data."""
    with loading():
        from fedade.cli.choosing import settings_with
        from fedade.experiments.assignments import refuse_idle
        from fedade.experiments.presets import PRESETS, settings_from
        from fedade.experiments.settings import experiment_from

        settings, folder = _resumed(resume) if resume else (settings_from(what), out)
        if method:
            settings["methods"] = method
        if seed:
            settings["seeds"] = seed
        experiment = experiment_from(settings_with(settings, set_, data_dir, device))
        refuse_idle(set_ or [], [entry.method for entry in experiment.methods])
        from fedade.cli.progress import listening
        from fedade.experiments.identifying import identified_experiment
        from fedade.products.run_folder import fingerprint, run
    experiment = identified_experiment(experiment)
    folder = folder or Path("runs") / f"{what if what in PRESETS else Path(what).stem}-{fingerprint(experiment)}"
    with listening(folder, json_, track, watch) as listener:
        done = run(experiment, folder, listener, jobs)
    if json_:
        typer.echo(json.dumps(done.as_plain()))
    else:
        _print(experiment, done)
    for cell, status in done.failed:
        typer.echo(f"fedade: {cell.title} failed: {status.reason}", err=True)
    if done.failed:
        raise typer.Exit(1)


def _resumed(folder: Path) -> tuple[dict[str, Any], Path]:
    from fedade.core import storage
    from fedade.core.paths import CONFIG

    if not (folder / CONFIG).is_file():
        raise FedadeError(f"--resume {folder}: there is no run in this folder (no {CONFIG})")
    return storage.read_yaml(folder / CONFIG), folder


def _print(experiment: "Experiment", done: "Run") -> None:
    from fedade.reporting.results import rows, run_table
    from fedade.reporting.table_model import texts

    if not done.results:
        return
    scenario = experiment.scenario
    title = (
        f"{scenario.dataset}: {scenario.kind} shift, schedule {scenario.schedule}, {scenario.num_clients} clients, "
        f"{scenario.num_timesteps} timesteps, {len(experiment.seeds)} seed(s)"
    )
    console = Console()
    console.print(title, highlight=False)
    results = run_table(rows(done.results))
    table = terminal_table([results.corner], [column.name for column in results.columns])
    for row, shown in zip(results.rows, texts(results), strict=True):
        table.add_row(*shown, style="dim" if row.oracle else None)
    console.print(table)
    for note in results.notes:
        console.print(note, style="dim", highlight=False)
    console.print(f"report: {done.folder / 'report.html'}", soft_wrap=True, highlight=False)
