"""The reference says all there is: of the public names, the registries, the settings and the commands."""

import re
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, Field

import fedade
from command_pages import command_sections
from fedade.cli.main import COMMANDS
from fedade.methods import METHODS, settings_of
from registry_tables import TABLES, method_settings
from settings_tables import SettingRow, setting_rows

DOCS = Path(__file__).parents[2] / "docs"


class Inner(BaseModel):
    size: int = Field(3, ge=1, lt=9)
    """How large."""


class Outer(BaseModel):
    mode: Literal["a", "b"] = "a"
    """Which way."""
    share: float | None = None
    inner: Inner = Inner()


def test_a_setting_says_its_values_its_default_and_its_meaning():
    assert list(setting_rows(Outer, preset={"share": 0.5})) == [
        SettingRow("mode", "`a`, `b`", "a", "Which way."),
        SettingRow("share", "number or `null`", "0.5", ""),
        SettingRow("inner.size", "whole number ≥ 1 and < 9", "3", "How large."),
    ]


def test_every_public_name_is_in_the_reference():
    page = (DOCS / "reference" / "api.md").read_text()
    described = set(re.findall(r"auto\w+:: fedade\.(\w+)$", page, re.MULTILINE))
    assert described == set(fedade.__all__) - {"__version__"}


def test_every_setting_of_every_method_is_in_the_reference_and_the_recommended_method_comes_first():
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", method_settings(), re.MULTILINE | re.DOTALL))
    assert next(iter(sections)) == "fed-ade-plus"
    for name in METHODS:
        for setting in settings_of(name).keys() - {"constants"}:
            assert f"`{setting}" in sections[name], f"{name}.{setting}"


def test_every_setting_of_every_method_says_what_it_means():
    silent = [
        f"{name}.{row.key}"
        for name, make in METHODS.items()
        for row in setting_rows(getattr(make, "func", make))
        if not row.meaning
    ]
    assert silent == [], "write a docstring under the field"


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_table_has_rows_of_equal_width(name):
    rows = [line for line in TABLES[name]().splitlines() if line.startswith("|")]
    widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert len(rows) >= 6
    assert len(widths) == 1


def test_every_command_and_its_options_are_in_the_reference():
    text = command_sections()
    for name in COMMANDS:
        assert f"## fedade {name}\n" in text
    assert "### fedade data fetch\n" in text
    assert "`--resume PATH`" in text
    assert "runs/NAME-HASH" in text
