"""docs/configuration.md says what the settings are: every field, its default and its choices, and nothing else."""

import json
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedade.experiments.settings import ExecutionSettings, Experiment, ProtocolSettings
from fedade.methods.fed_ade import FedAde
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.methods.fed_ade_release import FedAdeRelease
from fedade.parts.optimisers import Optimiser
from fedade.parts.rates import Paces, RateBounds, SignalRange
from fedade.scenarios.settings import PretrainingSettings, ScenarioSettings, TextSettings

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

SECTIONS: dict[str, tuple[str, type[BaseModel]]] = {
    "Experiment": ("", Experiment),
    "Scenario": ("scenario.", ScenarioSettings),
    "Pre-training": ("scenario.pretraining.", PretrainingSettings),
    "Text": ("scenario.text.", TextSettings),
    "Protocol": ("protocol.", ProtocolSettings),
    "Execution": ("execution.", ExecutionSettings),
    "Method: fed-ade-plus": ("fed-ade-plus.", FedAdePlus),
    "Method: fed-ade": ("fed-ade.", FedAde),
    "Signal": ("fed-ade.signal.", SignalRange),
    "Paces": ("fed-ade.paces.", Paces),
    "Rate": ("fed-ade.rate.", RateBounds),
    "Optimiser": ("fed-ade.optimiser.", Optimiser),
    "Method: fed-ade-release": ("fed-ade-release.", FedAdeRelease),
}


def documented(section: str) -> dict[str, tuple[str, str]]:
    """Type and default of every key in the table of a section, as printed."""
    headings = re.split(r"^#{2,3} (.+)\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    bodies = dict(zip(headings[1::2], headings[2::2], strict=True))
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|", bodies[section], flags=re.MULTILINE)
    return {key: (kind, default) for key, kind, default in rows}


def fields(section: str) -> dict[str, FieldInfo]:
    prefix, model = SECTIONS[section]
    return {prefix + name: field for name, field in model.model_fields.items()}


def as_yaml(value: Any) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def choices(annotation: Any) -> set[str]:
    return {f"`{choice}`" for choice in get_args(annotation)} if get_origin(annotation) is Literal else set()


def test_every_table_of_the_page_is_checked():
    keys = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(keys) == sum(len(documented(section)) for section in SECTIONS) >= 60


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_documented_and_every_documented_setting_exists(section):
    assert documented(section).keys() == fields(section).keys()


@pytest.mark.parametrize("section", SECTIONS)
def test_documented_defaults_are_the_defaults(section):
    for key, (_, default) in documented(section).items():
        value = fields(section)[key].default
        if isinstance(value, BaseModel):
            assert default in ("below", "above"), key
        else:
            assert default == as_yaml(value), key


@pytest.mark.parametrize("section", SECTIONS)
def test_documented_choices_are_the_choices(section):
    for key, (kind, _) in documented(section).items():
        known = choices(fields(section)[key].annotation)
        if known and not kind.startswith("as for"):
            assert set(kind.split(", ")) == known, key
