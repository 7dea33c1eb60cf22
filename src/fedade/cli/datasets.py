"""`fedade data`."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from fedade.cli.options import DataDir, Json, print_entries

app = typer.Typer(help="Find, check and fetch datasets.", no_args_is_help=True, add_completion=False)
Name = Annotated[str, typer.Argument(help="See `fedade data list`.")]


@app.command("list")
def list_datasets(data_dir: DataDir = None, json_: Json = False) -> None:
    """Which datasets are known, and which are on disk."""
    from fedade.data.registry import describe

    print_entries(describe(data_dir), json_)


@app.command("where")
def where_is(name: Name, data_dir: DataDir = None, json_: Json = False) -> None:
    """The folder that a dataset is read from."""
    from fedade.data.registry import where

    folder = where(name, data_dir)
    plain = {"name": name, "where": None if folder is None else str(folder)}
    typer.echo(json.dumps(plain) if json_ else folder or "not on disk, or installed with the package")


@app.command("check")
def check_dataset(name: Name, data_dir: DataDir = None, json_: Json = False) -> None:
    """Decode a dataset whole and compare its files with published checksums."""
    from fedade.data.registry import check

    verdicts = check(name, data_dir)
    if json_:
        typer.echo(json.dumps(verdicts))
        return
    files = ", ".join(f"{file}: {verdict}" for file, verdict in verdicts["files"].items())
    found = {key: str(value) for key, value in verdicts.items()} | {"files": files}
    print_entries([{"what": key, "found": value} for key, value in found.items()], json_=False)


@app.command("fetch")
def fetch_dataset(name: Name, data_dir: DataDir = None, json_: Json = False) -> None:
    """Download a dataset from its public source, unless a complete copy is on disk."""
    from fedade.data.registry import fetch

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=json_) as bar:
        task = bar.add_task(name, total=None)
        folder = fetch(name, data_dir, lambda done, total: bar.update(task, completed=done, total=total))
    typer.echo(json.dumps({"name": name, "where": str(folder)}) if json_ else f"{name}: {folder or 'installed'}")
