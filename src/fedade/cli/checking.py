"""`fedade check-method`."""

import json
from functools import reduce
from typing import Annotated

import typer

from fedade.cli.options import Json, Set, loading


def check_method_command(
    name: Annotated[str, typer.Argument(metavar="METHOD", help="A method's name, or package.module:Class.")],
    set_: Set = None,
    json_: Json = False,
) -> None:
    """Check that a method keeps the promises of every method, on a small scenario; `--set` gives it settings."""
    with loading():
        from fedade.experiments.assignments import with_setting
        from fedade.experiments.settings import build_method

        own = [setting.removeprefix(f"{name}.") for setting in set_ or []]  # as `fedade run` has them, or without
        method = build_method(name, reduce(with_setting, own, {}))
        from fedade.checking.checks import CHECKS, checked
        from fedade.checking.trials import trial_scenarios
        from fedade.core.paths import cache_dir
    failed: dict[str, str] = {}
    for check, reason in checked(method, trial_scenarios(cache_dir())):
        same = next((other for other in failed if failed[other] == reason), None)
        if reason is not None:
            failed[check] = reason
        if not json_:
            why = reason if same is None else f"as {same}"
            told = (CHECKS[check].__doc__ or "").splitlines()[0] if reason is None else why
            typer.echo(f"{'pass' if reason is None else 'FAIL'}  {check}: {told}")
    if json_:
        typer.echo(json.dumps({"method": name, "checks": {check: failed.get(check) for check in CHECKS}}))
    if failed:
        raise typer.Exit(1)
