"""Commands as Markdown, from what Typer knows of them."""

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

from typer.main import get_command

from fedade.cli.main import COMMANDS, _load, app
from registry_tables import markdown_table


def command_sections() -> str:
    """A section per command, with its arguments and options."""
    root = get_command(app)
    parts = [_section("fedade", root, 2)]
    for name in COMMANDS:
        parts.extend(_sections(f"fedade {name}", _load(name), 2))
    return "\n".join(parts)


def _sections(path: str, command: Any, level: int) -> Iterator[str]:
    yield _section(path, command, level)
    for name, child in getattr(command, "commands", {}).items():
        yield from _sections(f"{path} {name}", child, level + 1)


def _section(path: str, command: Any, level: int) -> str:
    context = command.context_class(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    rows = [_parameter(parameter, context) for parameter in command.params if parameter.name != "help"]
    help_text = cleandoc(command.help or "").replace("\f", "")
    table = markdown_table(("argument or option", "default", "meaning"), rows) if rows else ""
    return f"{'#' * level} {path}\n\n```text\n{usage}\n```\n\n{help_text}\n\n{table}\n"


def _parameter(parameter: Any, context: Any) -> tuple[str, str, str]:
    is_option = parameter.param_type_name == "option"
    metavar = parameter.make_metavar(context)
    if not is_option:
        name = metavar
    elif parameter.is_flag:
        name = ", ".join([*parameter.opts, *parameter.secondary_opts])
    else:
        name = f"{', '.join(parameter.opts)} {metavar}"
    shown = parameter.show_default
    default = shown if isinstance(shown, str) else parameter.default
    missing = default is None or default is False or callable(default) or "unset" in str(default).lower()
    repeatable = " Repeatable." if parameter.multiple and "repeatable" not in (parameter.help or "").lower() else ""
    return f"`{name}`", "" if missing else f"`{default}`", (parameter.help or "") + repeatable
