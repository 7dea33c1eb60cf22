"""Commands begin at once: what they only name, list or refuse is known without importing PyTorch."""

import importlib
import json
import subprocess
import sys

import pytest

from fedade.cli.main import COMMANDS


@pytest.mark.parametrize("kind", ["methods", "datasets", "models", "schedules", "measures", "presets", "suites"])
def test_everything_can_be_listed(fedade, kind):
    entries = json.loads(fedade("list", kind, "--json", check=True).stdout)
    assert all(entry["name"] for entry in entries)
    shown = fedade("list", kind, check=True).stdout
    assert all(entry["name"] in shown for entry in entries)


def test_commands_are_listed_without_importing_any_and_each_is_there():
    program = "import sys, fedade.cli.main; sys.exit(bool({'torch', 'pydantic', 'pyarrow'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    for name, lazy in COMMANDS.items():
        loaded = getattr(importlib.import_module(f"fedade.cli.{lazy.module}"), lazy.attribute)
        assert callable(loaded), name
        assert len(lazy.summary) < 75, "one line"


WITHOUT_PYTORCH = {
    **{name: [name, "--help"] for name in COMMANDS},
    "words": ["run", "--sede", "1"],
    "datasets": ["list", "datasets"],
    "data": ["data", "where", "digits"],
    "tables": ["results", "write", "table.md"],
    "certificates": ["flower", "certs", "keys"],
}


def test_commands_import_pytorch_only_where_they_compute(tmp_path):
    (tmp_path / "table.md").write_text("no table\n")
    program = f"""
import sys
from fedade.cli.main import main
for name, words in {WITHOUT_PYTORCH!r}.items():
    sys.argv = ["fedade", *words]
    try:
        main()
    except SystemExit as end:
        assert end.code == (2 if name == "words" else 0), (name, end.code)
    assert "torch" not in sys.modules, name
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
