"""`fedade`: the commands."""

import importlib
import os
import re
import sys
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fedade.core.errors import FedadeError
from fedade.core.version import __version__


class LazyCommand(NamedTuple):
    """Where a command is, and what the list of commands says of it: importing PyTorch takes seconds."""

    module: str
    attribute: str
    summary: str


COMMANDS: Mapping[str, LazyCommand] = {
    "run": LazyCommand("running", "run_command", "Run methods on a scenario; without arguments, the main comparison."),
    "bench": LazyCommand("running", "bench_command", "Run a table or a figure of the paper, cell by cell."),
    "list": LazyCommand("listing", "list_command", "List what can be named on the command line and in configurations."),
    "check-method": LazyCommand("checking", "check_method_command", "Check that a method keeps the contract."),
    "pretrain": LazyCommand("tuning", "pretrain_command", "Train and store the model that an experiment deploys."),
    "tune": LazyCommand("tuning", "tune_command", "Find a method's constants for a model, on simulated drift."),
    "report": LazyCommand("reporting", "report_command", "Write the report page of runs and suites again."),
    "results": LazyCommand("reporting", "results", "Keep results as data, and tables that are made of them."),
    "watch": LazyCommand("reporting", "watch_command", "Show a running run's page, which follows it by itself."),
    "export": LazyCommand("reporting", "export_command", "Write runs and suites to TensorBoard or MLflow."),
    "speed": LazyCommand("speed", "speed_command", "Time the simulator against a plain loop, on the same work."),
    "data": LazyCommand("datasets", "app", "List, find, check and fetch datasets."),
    "flower": LazyCommand("flower", "app", "Run methods on real clients, over a network, with Flower."),
}


class LazyGroup(TyperGroup):
    """A group that lists its commands without importing them, and imports one when it is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, lazy in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=lazy.summary)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else _load(name), rest


def _load(name: str) -> Any:
    lazy = COMMANDS[name]
    loaded = getattr(importlib.import_module(f"fedade.cli.{lazy.module}"), lazy.attribute)
    if isinstance(loaded, typer.Typer):
        return get_command(loaded)
    alone = typer.Typer(context_settings=_HELP, add_completion=False)
    alone.command(name)(loaded)
    return get_command(alone)


_HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="fedade",
    cls=LazyGroup,
    help="Adapt deployed models on many drifting clients, without labels.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings=_HELP,
)


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
    warnings.showwarning = _warn
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # users name models and methods of their folder; last, so that it hides nothing
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
        line = " ".join(message.split())  # click lists choices one below the other
        once = re.sub(r"( Did you mean [^?]*\?)\1", r"\1", line)  # typer and newer clicks both suggest
        stop = "" if once.endswith((".", "?")) else "."
        _end(f"fedade: {once[0].lower()}{once[1:]}{stop} See `fedade --help`.", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:
        _end("fedade: interrupted; start the same command again to continue", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _end(message: str, code: int) -> NoReturn:
    _say(message)
    sys.exit(code)


def _warn(message: Warning | str, *_where: Any, **_also: Any) -> None:
    """A warning is a line as an error is, without the line of source that gave it."""
    _say(f"fedade: {message}")


def _say(message: str) -> None:
    # It may quote a stranger's file, whose words must not be commands to the terminal.
    typer.echo("".join(sign if sign.isprintable() or sign == "\n" else " " for sign in message), err=True)
