"""`fedade bench`."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedade.cli.bench_progress import bench_progress
from fedade.cli.options import DataDir, Device, Json, Set
from fedade.data.locate import search_path
from fedade.experiments.bench.engines import engine_of
from fedade.experiments.bench.running import SuiteRun, run_suite
from fedade.experiments.products import finish
from fedade.experiments.running import check_device
from fedade.experiments.suite_report import write_suite_report
from fedade.experiments.suites import SUITES, suite_of
from fedade.experiments.suites.cell import Cell, Suite
from fedade.experiments.suites.selecting import select


class EngineName(StrEnum):
    """Who runs the cells."""

    local = "local"
    ray = "ray"


def bench_command(
    name: Annotated[str, typer.Argument(metavar="SUITE", help=f"One of {', '.join(SUITES)}.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the suite.", show_default="runs/bench-SUITE")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Only cells with this label; repeatable. VALUE may be a list: a,b."),
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(min=0, help="Seed, instead of the suite's; repeatable.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cells to run at the same time on this machine.")] = 1,
    engine: Annotated[EngineName, typer.Option(help="This machine, or a Ray cluster.")] = EngineName.local,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed cells again.")] = False,
    set_: Set = None,
    device: Device = "cpu",
    data_dir: DataDir = None,
    json_: Json = False,
) -> None:
    """Run a table or a figure of the paper, cell by cell; the same command again continues where it stopped."""
    suite = suite_of(name)
    cells = [cell.changed(set_ or []) for cell in _chosen(suite, seed, only, data_dir)]
    folder = out or Path("runs") / f"bench-{suite.name}"
    if engine is EngineName.local:
        check_device(device)
    with engine_of(engine, jobs, device) as workers, bench_progress(suite.name, quiet=json_) as watcher:
        done = run_suite(suite.name, cells, folder, device, workers, watcher, retry_failed)
        written = finish(suite, done.folder, device, watcher.advance)
        if any(finding.state == "done" for _, finding in done.cells):
            written.append(write_suite_report(done.folder))
    if json_:
        typer.echo(json.dumps(done.as_plain()))
    else:
        _print(done, written)
    if done.failed:
        raise typer.Exit(1)


def _chosen(suite: Suite, seeds: list[int] | None, only: list[str] | None, data_dir: Path | None) -> list[Cell]:
    cells = select(suite.cells(tuple(dict.fromkeys(seeds or suite.seeds))), only or [])
    if data_dir is None:
        return cells
    search_path(data_dir)  # refuses a folder that does not exist
    return [cell.reading_from(data_dir) for cell in cells]


def _print(done: SuiteRun, written: list[Path]) -> None:
    tables = done.folder / "tables.txt"
    if tables in written:
        typer.echo(tables.read_text())
    for cell, finding in done.set_aside:
        typer.echo(f"damaged, set aside and run again: {cell.title}: {finding.set_aside}")
    for cell, finding in done.failed:
        typer.echo(f"failed: {cell.title} (cell {cell.address}): {finding.reason}")
    if done.failed:
        typer.echo("run failed cells again with --retry-failed")
    if written:
        typer.echo(f"written: {', '.join(str(path.relative_to(done.folder)) for path in written)}")
    whole = len(done.cells) - len(done.failed)
    typer.echo(f"{done.suite}: {whole} of {len(done.cells)} cells done, {done.seconds:.0f} s; {done.folder}")
