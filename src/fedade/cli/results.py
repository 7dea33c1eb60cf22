"""`fedade results`."""

from pathlib import Path
from typing import Annotated

import typer

from fedade.cli.options import loading
from fedade.core.errors import FedadeError

app = typer.Typer(
    help="Keep results as data, and tables that are made of them.", no_args_is_help=True, add_completion=False
)

ResultsFolder = Annotated[Path, typer.Option("--results", help="Folder of the files of results.")]
DOCS = Path("docs") / "results"


@app.command("add")
def add_command(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_OR_SUITE...", help="Folders, finished or not.")],
    results: ResultsFolder = DOCS,
    name: Annotated[str | None, typer.Option(help="Name of the file.", show_default="the suite's")] = None,
) -> None:
    """Add the finished cells of folders to files of results; adding again changes nothing."""
    with loading():
        from fedade.core.paths import require_folder

        for folder in folders:
            require_folder(folder)
        from fedade.products.results_file import add_results
    for folder in folders:
        added = add_results(folder, results, name)
        instead = f", {added.replaced} of them instead of lines with another fingerprint" if added.replaced else ""
        typer.echo(f"{added.path}: {added.cells} cells of {folder}{instead}")


@app.command("write")
def write_command(
    documents: Annotated[
        list[Path],
        typer.Argument(metavar="FILE.md...", exists=True, dir_okay=False, help="Markdown files with tables."),
    ],
    results: ResultsFolder = DOCS,
    check: Annotated[bool, typer.Option("--check", help="Change nothing, and fail where something would.")] = False,
) -> None:
    """Make the tables of Markdown files again from the files of results."""
    with loading():
        from fedade.products.documents import write_documents
    changed = write_documents(documents, results, check)
    if check and changed:
        raise FedadeError(f"not as the results say: {', '.join(map(str, changed))}; run `fedade results write`")
    typer.echo(f"{len(changed)} of {len(documents)} files changed")
