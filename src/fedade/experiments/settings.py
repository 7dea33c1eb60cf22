"""An experiment as one frozen, validated object."""

import difflib
import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedade.core.errors import FedadeError
from fedade.core.method import Method
from fedade.core.precision import Precision
from fedade.methods import METHODS
from fedade.scenarios.settings import ScenarioSettings


class FederationSettings(BaseModel):
    """How clients and server meet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(10, ge=1)
    """Rounds per timestep, R."""
    participation: float = Field(0.1, gt=0, le=1)
    """Share of the clients in a round."""
    client_map: Literal["auto", "loop", "vectorised"] = "auto"
    precision: Precision = "float32"
    """In which networks multiply; tf32 and bf16 need a GPU."""
    cuda_graphs: bool = True
    """On a GPU, record each step once and replay it."""
    score_fresh: bool = False
    """Also score on an independent draw of the same timestep (column accuracy_fresh)."""
    scored_clients: int | None = Field(None, ge=1)
    """Score this many clients, drawn once; who is neither scored nor takes part in a timestep sleeps through it."""
    client_state: Literal["memory", "file"] = "memory"
    """Where the clients' states live; `file` maps files of the run's folder, for more states than memory holds."""


class Experiment(BaseModel):
    """A scenario, the methods that meet it, and the seeds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scenario: ScenarioSettings = ScenarioSettings()
    federation: FederationSettings = FederationSettings()
    methods: tuple[str, ...] = Field(("source", "fix-lr-mid", "fed-ade", "fed-ade-plus", "oracle-prior"), min_length=1)
    method: dict[str, Any] = {}
    """Settings of the methods; each takes those that it has."""
    seeds: tuple[int, ...] = Field((0,), min_length=1)

    @field_validator("methods")
    @classmethod
    def _known(cls, methods: tuple[str, ...]) -> tuple[str, ...]:
        for name in methods:
            if name not in METHODS:
                raise ValueError(f"unknown method {name!r}{_hint(name, METHODS)}")
        return tuple(dict.fromkeys(methods))

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if any(seed < 0 for seed in seeds):
            raise ValueError("seeds are whole numbers from 0")
        return tuple(dict.fromkeys(seeds))

    def build_methods(self) -> dict[str, Method]:
        """Every method with those of the settings that it has."""
        settable = {key for name in METHODS for key in _fields(name)}
        for key in self.method:
            if key not in settable:
                raise FedadeError(f"method.{key}: no method has this setting{_hint(key, settable)}")
        return {name: self.build_method(name) for name in self.methods}

    def build_method(self, name: str, measured_rates: tuple[float, ...] = ()) -> Method:
        """A method with its settings; those that replay a run's learning rates are given them."""
        own = {key: value for key, value in self.method.items() if key in _fields(name)}
        if measured_rates:
            own["measured_rates"] = measured_rates
        try:
            return METHODS[name](**own)
        except ValidationError as error:
            raise FedadeError(_explain(error, "method")) from error

    def as_plain(self) -> dict[str, Any]:
        """Nested dicts and lists, as written to `config.yaml`."""
        plain: dict[str, Any] = json.loads(self.model_dump_json())
        return plain


def experiment_from(settings: Mapping[str, Any]) -> Experiment:
    """Validate nested settings; the error names the field, the value and what is allowed."""
    try:
        experiment = Experiment(**settings)
    except ValidationError as error:
        raise FedadeError(_explain(error, "")) from error
    experiment.build_methods()
    return experiment


def with_setting(settings: Mapping[str, Any], assignment: str) -> dict[str, Any]:
    """Nested settings with one `key.path=value` on top; the value is read as YAML."""
    path, equals, text = assignment.partition("=")
    if not equals or not path:
        raise FedadeError(f"--set {assignment}: expected key=value, for example --set scenario.alpha=0.5")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FedadeError(f"--set {path}: {text!r} is not a value") from error
    if isinstance(value, str):
        value = _number(value)
    return _assigned(settings, path.strip().split("."), value, path)


def _number(text: str) -> Any:
    """YAML 1.1 reads 1e-4 as text; people mean a number."""
    try:
        return float(text)
    except ValueError:
        return text


def _assigned(settings: Mapping[str, Any], keys: list[str], value: Any, path: str) -> dict[str, Any]:
    inner = value
    if len(keys) > 1:
        below = settings.get(keys[0], {})
        if not isinstance(below, Mapping):
            raise FedadeError(f"--set {path}: {keys[0]} is a value, not a group of settings")
        inner = _assigned(below, keys[1:], value, path)
    return {**settings, keys[0]: inner}


def _fields(name: str) -> set[str]:
    made = METHODS[name]
    model = made.func if isinstance(made, partial) else made
    return set(getattr(model, "model_fields", {}))


def _hint(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; choose from {', '.join(sorted(known))}"


def _explain(error: ValidationError, prefix: str) -> str:
    """The first thing that is wrong, in one line."""
    found = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in ((prefix,) if prefix else ()) + found["loc"])
    if found["type"] == "extra_forbidden":
        return f"{path}: there is no such setting; `fedade list presets` and docs/configuration.md show all"
    message = found["msg"].removeprefix("Value error, ")
    given = "" if isinstance(found["input"], dict | BaseModel) else f" (given: {found['input']!r})"
    return f"{path}: {message[0].lower()}{message[1:]}{given}"
