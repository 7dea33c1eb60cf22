"""`fedade run` and `fedade bench`."""

import json
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from fedade.cli.options import DEFAULT, DataDir, Device, Json, Set, Track, Watch, What, loading, writable_folder
from fedade.core.errors import FedadeError
from fedade.core.paths import CONFIG

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
        from fedade.core import storage
        from fedade.experiments.assignments import refuse_idle
        from fedade.experiments.presets import PRESETS, settings_from
        from fedade.experiments.settings import experiment_from

        if resume and not (resume / CONFIG).is_file():
            raise FedadeError(f"--resume {resume}: there is no run in this folder (no {CONFIG})")
        if resume and (out or what != DEFAULT):
            idle = f"--out {out}" if out else what
            raise FedadeError(f"--resume {resume}: the folder says what is run, and where; leave out {idle}")
        settings, folder = (storage.read_yaml(resume / CONFIG), resume) if resume else (settings_from(what), out)
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
        _print_run(experiment, done)
    for cell, status in done.failed:
        typer.echo(f"fedade: {cell.title} failed: {status.reason}", err=True)
    if done.failed:
        raise typer.Exit(1)


def _print_run(experiment: "Experiment", done: "Run") -> None:
    from fedade.cli.options import terminal_table
    from fedade.reporting.rendering import texts
    from fedade.reporting.results import rows, run_table

    if not done.results:
        return
    scenario = experiment.scenario
    stream = f"stream {scenario.stream}, " if scenario.stream != "drift" else ""
    title = (
        f"{scenario.dataset}: {scenario.kind} shift, {stream}schedule {scenario.schedule}, "
        f"{scenario.num_clients} clients, {scenario.num_timesteps} timesteps, {len(experiment.seeds)} seed(s)"
    )
    console = Console(markup=False)  # names of rows and folders may hold brackets
    console.print(title, highlight=False)
    results = run_table(rows(done.results))
    table = terminal_table([results.corner], [column.name for column in results.columns])
    for row, shown in zip(results.rows, texts(results), strict=True):
        table.add_row(*shown, style="dim" if row.oracle else None)
    console.print(table)
    for note in results.notes:
        console.print(note, style="dim", highlight=False)
    console.print(f"report: {done.folder / 'report.html'}", soft_wrap=True, highlight=False)


if TYPE_CHECKING:
    from fedade.products.suite_folder import SuiteRun


def bench_command(
    name: Annotated[str, typer.Argument(metavar="SUITE", help="See `fedade list suites`.")],
    out: Annotated[
        Path | None,
        typer.Option(callback=writable_folder, help="Folder of the suite.", show_default="runs/bench-SUITE"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Only cells with this label; repeatable. VALUE may be a list: a,b."),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(min=0, help="Seed, instead of the suite's; repeatable.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cells to run at the same time on this machine.")] = 1,
    engine: Annotated[Literal["local", "ray"], typer.Option(help="This machine, or a Ray cluster.")] = "local",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed cells again.")] = False,
    set_: Set = None,
    device: Device = None,
    data_dir: DataDir = None,
    track: Track = None,
    watch: Watch = False,
    json_: Json = False,
) -> None:
    """Run a table or a figure of the paper, cell by cell; the same command again continues where it stopped."""
    with loading():
        from fedade.cli.choosing import refuse_unknown
        from fedade.experiments.assignments import with_setting
        from fedade.experiments.suites import suite_of
        from fedade.experiments.suites.grid import select

        suite, device = suite_of(name), device or "cpu"
        refuse_unknown(reduce(with_setting, set_ or [], {}))
        from fedade.cli.progress import listening
        from fedade.data.locate import search_path
        from fedade.experiments.identifying import changed_cell
        from fedade.products.run_folder import check_device
        from fedade.products.suite_folder import run_suite
    if engine == "local":
        check_device(device)
    if data_dir is not None:
        search_path(data_dir)  # refuses a folder that does not exist
    chosen = select(suite.cells(tuple(dict.fromkeys(seed or suite.seeds))), only or [])
    cells = [changed_cell(cell, set_ or []).computed_on(device, data_dir) for cell in chosen]
    folder = out or Path("runs") / f"bench-{suite.name}"
    with listening(folder, json_, track, watch) as listener:
        done = run_suite(suite, cells, folder, device, listener, engine, jobs, retry_failed)
    if json_:
        typer.echo(json.dumps(done.as_plain()))
    else:
        _print_suite(done)
    if done.cells.failed:
        raise typer.Exit(1)


def _print_suite(done: "SuiteRun") -> None:
    folder, cells = done.cells.folder, done.cells
    tables = folder / "tables.txt"
    if tables in done.written:
        typer.echo(tables.read_text())
    for cell, status in cells.set_aside:
        typer.echo(f"damaged, set aside and run again: {cell.title}: {status.set_aside}")
    for cell, status in cells.failed:
        typer.echo(f"failed: {cell.title} (cell {cell.address}): {status.reason}")
    if cells.failed:
        typer.echo("run failed cells again with --retry-failed")
    if done.written:
        typer.echo(f"written: {', '.join(str(path.relative_to(folder)) for path in done.written)}")
    whole = len(cells.cells) - len(cells.failed)
    typer.echo(f"{done.suite}: {whole} of {len(cells.cells)} cells done, {cells.seconds:.0f} s; {folder}")
