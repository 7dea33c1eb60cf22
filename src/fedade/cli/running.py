"""`fedade run`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedade.cli.progress import progress_bars
from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.experiments.presets import DEFAULT, PRESETS, settings_from
from fedade.experiments.running import Run, check_device, fingerprint, run
from fedade.experiments.settings import Experiment, experiment_from, with_setting
from fedade.reporting.page import cells, column_names
from fedade.reporting.results import rows


def run_command(
    what: Annotated[str, typer.Argument(metavar="[PRESET or FILE]", help="What to run.")] = DEFAULT,
    method: Annotated[list[str] | None, typer.Option(help="Method to run; repeat for several.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Seed; repeat for several.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/NAME-HASH")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    data_dir: Annotated[Path | None, typer.Option(help="Folder that holds datasets.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Run methods on a scenario; without arguments, the main comparison on the default data (about a minute)."""
    settings, folder = _resumed(resume) if resume else (settings_from(what), out)
    if method:
        settings["methods"] = method
    if seed:
        settings["seeds"] = seed
    for assignment in set_ or []:
        settings = with_setting(settings, assignment)
    if data_dir is not None:
        settings = with_setting(settings, f"scenario.data_dir={data_dir.resolve()}")
    experiment = experiment_from(settings)
    folder = folder or Path("runs") / f"{_name(what)}-{fingerprint(experiment)}"
    with progress_bars(quiet=json_) as report:
        done = run(experiment, folder, check_device(device), report)
    if json_:
        typer.echo(json.dumps(done.as_plain()))
    else:
        _print(experiment, done)


def _resumed(folder: Path) -> tuple[dict[str, Any], Path]:
    if not (folder / "config.yaml").is_file():
        raise FedadeError(f"--resume {folder}: there is no run in this folder (no config.yaml)")
    return storage.read_yaml(folder / "config.yaml"), folder


def _name(what: str) -> str:
    return what if what in PRESETS else Path(what).stem


def _print(experiment: Experiment, done: Run) -> None:
    scenario = experiment.scenario
    title = (
        f"{scenario.dataset}: {scenario.kind} shift, schedule {scenario.schedule}, {scenario.num_clients} clients, "
        f"{scenario.num_timesteps} timesteps, {len(experiment.seeds)} seed(s)"
    )
    table = Table(title=title, title_justify="left")
    for place, name in enumerate(column_names()):
        table.add_column(name, justify="left" if place == 0 else "right")
    for row in rows(done.results):
        table.add_row(*cells(row), style="dim" if row.oracle else None)
    console = Console()
    console.print(table)
    console.print(f"report: {done.folder / 'report.html'}", soft_wrap=True, highlight=False)
