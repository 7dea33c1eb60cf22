"""Commands begin at once: what they only name, list or refuse is known without importing PyTorch."""

import importlib
import json
import subprocess
import sys
from typing import get_args

import pytest

from fedade.cli.listing import ListedKind
from fedade.cli.main import COMMANDS


@pytest.mark.parametrize("kind", get_args(ListedKind))
def test_everything_can_be_listed(fedade, kind):
    entries = json.loads(fedade("list", kind, "--json", check=True).stdout)
    assert all(entry["name"] for entry in entries)
    shown = fedade("list", kind, check=True).stdout
    assert all(entry["name"] in shown for entry in entries)


def test_help_of_speed_names_its_default_and_the_extra_that_it_needs(fedade):
    shown = fedade("speed", "--help", check=True).stdout
    assert "all that the device has" in shown
    assert "extra flower" in shown


def test_commands_are_listed_without_importing_any_and_each_is_there():
    program = "import sys, fedade.cli.main; sys.exit(bool({'torch', 'pydantic', 'pyarrow'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    for name, lazy in COMMANDS.items():
        loaded = getattr(importlib.import_module(f"fedade.cli.{lazy.module}"), lazy.attribute)
        assert callable(loaded), name
        assert len(lazy.summary) < 75, "one line"


WITHOUT_PYTORCH = [
    *([name, "--help"] for name in COMMANDS),
    *(["list", kind] for kind in get_args(ListedKind)),
    ["data", "where", "digits"],
    ["results", "write", "table.md"],
    ["flower", "certs", "keys"],
]
REFUSED_WITHOUT_PYTORCH = [
    ["run", "--sede", "1"],
    *([*command, "nonsense"] for command in (["run"], ["bench"], ["tune"], ["pretrain"], ["check-method"], ["report"])),
    *([*command, "nonsense"] for command in (["results", "add"], ["watch"], ["flower", "up"], ["run", "--resume"])),
    ["export", "nonsense", "--to", "mlflow"],
    ["run", "--method", "nonsense"],
    *(["run", "--set", setting] for setting in ("scenario.alhpa=1", "scenario.schedule=saw", "protocol.rounds=0")),
    *(["run", "--set", setting] for setting in ("scenario.dataset=cifer10", "scenario.model=vgg", "fed-ade.speed=1")),
    ["run", "--set", "methods=[{tent: {speed: 1}}]"],
    ["tune", "--set", "fed-ade.speed=1"],
    ["bench", "smoke", "--set", "fed-ade.speed=1"],
]


def test_commands_import_pytorch_only_where_they_compute(tmp_path):
    (tmp_path / "table.md").write_text("no table\n")
    program = f"""
import sys
from fedade.cli.main import main
for code, lines in ((0, {[[*map(str, words)] for words in WITHOUT_PYTORCH]!r}), (2, {REFUSED_WITHOUT_PYTORCH!r})):
    for words in lines:
        sys.argv = ["fedade", *words]
        try:
            main()
        except SystemExit as end:
            assert end.code == code, (words, end.code)
        assert "torch" not in sys.modules, words
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
