"""What the documents print is true: Python runs, commands exist, scripts are the tutorials."""

import re
import shlex
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from typer.main import get_command

from example_scripts import example_scripts
from fedade.cli.main import COMMANDS, _load, app
from fedade.core.errors import FedadeError
from fedade.experiments.presets import settings_from
from fedade.experiments.settings import experiment_from
from fedade.flower.settings import FlowerSettings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SYNOPSIS = re.compile(r"\[[A-Z-]|\.\.\.|[a-z]\|[a-z]|DIR\b")
"""What a line has that shows what could be written, instead of being something to write."""


def blocks(page: Path, language: str) -> list[str]:
    return [text for named, text in BLOCK.findall(page.read_text(encoding="utf-8")) if named == language]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]
COMMAND_LINES = sorted(
    {
        line.partition("  #")[0].strip()
        for page in PAGES
        for block in blocks(page, "")
        for line in block.replace("\\\n", " ").splitlines()
        if re.match(r"\s*(RAY_ADDRESS=\S+ )?fedade ", line) and not SYNOPSIS.search(line.partition("  #")[0])
    }
)


@pytest.mark.parametrize("page", WITH_PYTHON, ids=named)
def test_every_python_example_of_the_documents_runs(page, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "python"):
        module = ModuleType("example")
        monkeypatch.setitem(sys.modules, "example", module)  # where pydantic looks for the classes of a block
        exec(compile(block, named(page), "exec"), vars(module))  # noqa: S102


def test_enough_is_looked_at():
    assert len(WITH_PYTHON) >= 6
    assert len(COMMAND_LINES) >= 30


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_every_command_of_the_documents_has_options_that_there_are(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = [word for word in shlex.split(line, comments=True) if "*" not in word]  # a shell would have read these
    words = words[words.index("fedade") + 1 :]
    if words[0].startswith("-"):
        command = get_command(app)
    else:
        assert words[0] in COMMANDS
        command = _load(words.pop(0))
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    try:
        command.make_context("fedade", words, resilient_parsing=False)
    except FedadeError as error:
        if "holds no run and no suite" not in str(error):  # folders that documents name are not there
            raise


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=named)
def test_settings_of_the_documents_are_settings(page, tmp_path):
    for text in blocks(page, "yaml"):
        (tmp_path / "settings.yaml").write_text(text, encoding="utf-8")
        settings = settings_from(str(tmp_path / "settings.yaml"))
        FlowerSettings(**settings.pop("flower", {}))
        experiment_from(settings)


def test_packages_of_the_documents_can_be_read():
    texts = [block for page in PAGES for block in blocks(page, "toml")]
    assert texts
    for text in texts:
        assert tomllib.loads(text)


def test_examples_are_the_tutorials():
    written = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")}
    assert written == example_scripts(), "run `make examples`"
