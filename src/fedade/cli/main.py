"""`fedade`: the commands."""

import os
import re
import sys
from typing import Annotated, NoReturn

import typer

from fedade import __version__
from fedade.cli import benching, datasets, exporting, flower, listing, pretraining, reporting, running, speed, watching
from fedade.core.errors import FedadeError

app = typer.Typer(
    name="fedade",
    help="Adapt deployed models on many drifting clients, without labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(running.run_command)
app.command("bench")(benching.bench_command)
app.command("list")(listing.list_command)
app.command("pretrain")(pretraining.pretrain_command)
app.command("report")(reporting.report_command)
app.command("export")(exporting.export_command)
app.command("watch")(watching.watch_command)
app.command("speed")(speed.speed_command)
app.add_typer(datasets.app, name="data")
app.add_typer(flower.app, name="flower")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedade {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option(help="Show the full traceback of an error.")] = False,
) -> None:
    if debug:
        os.environ["FEDADE_DEBUG"] = "1"


INTERRUPTED = 130
"""Exit code after Ctrl-C; typer returns it where it catches the interrupt itself."""

_WORDS_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""Whatever is wrong with the words of a call: click's, which newer versions of typer carry inside."""


def main() -> None:
    """Entry point: an error that the user can mend is one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except FedadeError as error:
        if os.environ.get("FEDADE_DEBUG"):
            raise
        _end(f"fedade: {error}", 2)
    except _WORDS_ERROR as error:
        message = error.format_message()  # type: ignore[attr-defined]
        if not message:  # help was asked for by saying nothing, and has been printed
            sys.exit(2)
        once = re.sub(r"( Did you mean [^?]*\?)\1", r"\1", message)  # typer and newer clicks both suggest
        _end(f"fedade: {once[0].lower()}{once[1:]} See `fedade --help`.", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        _end("fedade: interrupted; start the same command again to continue", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _end(message: str, code: int) -> NoReturn:
    typer.echo(message, err=True)
    sys.exit(code)
