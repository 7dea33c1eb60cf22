"""What Flower's own command line prints, read back."""

import os
import stat
import sys
from pathlib import Path

import pytest

from fedade.core.errors import FedadeError
from fedade.flower import flwr_commands


def program(folder: Path, code: str) -> str:
    """A program in place of `flwr`."""
    path = folder / "flwr"
    path.write_text(f"#!{sys.executable}\n{code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize("name", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_json_is_read_where_colours_are_forced(tmp_path, monkeypatch, name):
    # As Flower prints it; notebooks set these variables.
    code = 'from rich.console import Console\nConsole().print_json(\'{"run-id": "7"}\')'
    monkeypatch.setattr(flwr_commands, "flower_program", lambda _: program(tmp_path, code))
    assert flwr_commands.submit("app", "here", {}, os.environ | {name: "1"}) == 7


@pytest.mark.parametrize("code", ["print('nothing to read')", "pass"])
def test_an_answer_that_is_no_json_is_one_line(tmp_path, monkeypatch, code):
    monkeypatch.setattr(flwr_commands, "flower_program", lambda _: program(tmp_path, code))
    with pytest.raises(FedadeError, match=r"^flwr run failed: (nothing to read|no reason given)$"):
        flwr_commands.submit("app", "here", {}, os.environ)
