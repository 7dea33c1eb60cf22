"""`fedade report`, `export`, `watch` and `results`: what is made of the folders of runs and suites."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedade.cli.options import TRACKER_NAMES, loading, writable_folder
from fedade.core.errors import FedadeError
from fedade.core.paths import require_folder

RunOrSuite = Annotated[Path, typer.Argument(metavar="RUN_OR_SUITE", callback=require_folder, help="Its folder.")]
RunsOrSuites = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN_OR_SUITE...", callback=lambda given: [*map(require_folder, given)], help="Their folders."
    ),
]


def report_command(
    folders: RunsOrSuites,
    table: Annotated[str | None, typer.Option(help="Print the tables instead: text, markdown, latex or csv.")] = None,
) -> None:
    """Write the report page of runs and suites again, and the figures of runs, from what their folders hold."""
    with loading():
        from fedade.products.suite_folder import printed_tables, write_any_report
    for folder in folders:
        typer.echo(f"report: {write_any_report(folder)}" if table is None else printed_tables(folder, table))


def export_command(
    folder: RunOrSuite,
    to: Annotated[str, typer.Option(help=f"{TRACKER_NAMES}.")],
    out: Annotated[
        Path | None,
        typer.Option(callback=writable_folder, help="Folder for logs or database.", show_default="in RUN_OR_SUITE"),
    ] = None,
) -> None:
    """Write what a run or suite recorded to TensorBoard or MLflow; again adds only what is new."""
    with loading():
        from fedade.listeners import export
    typer.echo(f"{to}: {export(folder, to, out)} cells of {folder}")


def watch_command(
    folder: RunOrSuite,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")] = 0,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Show a page that follows a run or suite, also one in another process; Ctrl-C ends the page, not the run."""
    with loading():
        from fedade.listeners.live_page import LiveServer
    with LiveServer(folder, port) as server:
        typer.echo(f"watching {folder}: {server.address} (Ctrl-C to end)")
        if open_:
            webbrowser.open(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("")


results = typer.Typer(
    help="Keep results as data, and tables that are made of them.", no_args_is_help=True, add_completion=False
)
ResultsFolder = Annotated[Path, typer.Option("--results", help="Folder of the files of results.")]
DOCS = Path("docs") / "results"


@results.command("add")
def add_command(
    folders: RunsOrSuites,
    files: ResultsFolder = DOCS,
    name: Annotated[str | None, typer.Option(help="Name of the file.", show_default="the suite's")] = None,
) -> None:
    """Add the finished cells of folders to files of results; adding again changes nothing."""
    with loading():
        from fedade.products.results_file import add_results
    for folder in folders:
        added = add_results(folder, files, name)
        instead = f", {added.replaced} of them instead of lines with another fingerprint" if added.replaced else ""
        typer.echo(f"{added.path}: {added.cells} cells of {folder}{instead}")
        if added.unread:
            typer.echo(
                f"fedade: {added.unread} finished cells of {folder} cannot be read and are left out; a method of yours "
                "must be in the current folder or on PYTHONPATH",
                err=True,
            )
        if added.incomparable:
            typer.echo(
                f"fedade: {added.path} has {len(added.incomparable)} scenarios whose rows were run with different "
                f"trainings of the model, first {', '.join(added.incomparable[0])}; run them again with one folder of "
                "trained models (FEDADE_CACHE)",
                err=True,
            )


@results.command("write")
def write_command(
    documents: Annotated[
        list[Path],
        typer.Argument(metavar="FILE.md...", exists=True, dir_okay=False, help="Markdown files with tables."),
    ],
    files: ResultsFolder = DOCS,
    check: Annotated[bool, typer.Option("--check", help="Change nothing, and fail where something would.")] = False,
) -> None:
    """Make the tables of Markdown files again from the files of results."""
    with loading():
        from fedade.products.documents import write_documents
    changed = write_documents(documents, files, check)
    if check and changed:
        raise FedadeError(f"not as the results say: {', '.join(map(str, changed))}; run `fedade results write`")
    typer.echo(f"{len(changed)} of {len(documents)} files changed")
