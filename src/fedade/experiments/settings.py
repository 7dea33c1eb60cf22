"""An experiment as one frozen, validated object."""

import json
import re
import reprlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, Field, ValidationError, field_validator, model_serializer, model_validator
from pydantic.fields import FieldInfo

from fedade.core.choices import StrictSettings, hint
from fedade.core.errors import FedadeError
from fedade.core.precision import Precision
from fedade.methods import METHODS, is_method, method_class, settings_of
from fedade.scenarios.settings import ScenarioSettings

if TYPE_CHECKING:
    from fedade.core.method import Method

Settings = dict[str, Any]
"""Nested settings as they are written: dicts, lists and values."""


class ProtocolSettings(StrictSettings):
    """How clients and server meet, and what is scored: part of what a result is."""

    rounds: int = Field(10, ge=1)
    """Rounds per timestep, R."""
    participation: float = Field(0.1, gt=0, le=1)
    """Share of the clients in a round."""
    score_fresh: bool = False
    """Also score on an independent draw of the same timestep (column accuracy_fresh)."""
    scored_clients: int | None = Field(None, ge=1)
    """Score this many clients, drawn once; who is neither scored nor takes part in a timestep sleeps through it."""


class ExecutionSettings(StrictSettings):
    """On what and how it is computed: no part of what a result is, but for rounding."""

    device: str = "cpu"
    """`cpu`, `cuda` or one of several GPUs, `cuda:1`."""
    precision: Precision = "float32"
    """The precision in which networks multiply; tf32 and bf16 need a GPU."""
    client_map: Literal["auto", "loop", "vectorised"] = "auto"
    cuda_graphs: bool = True
    """On a GPU, record each step once and replay it."""
    client_state: Literal["memory", "file"] = "memory"
    """Where the clients' states live; `file` maps files of the run's folder, for more states than memory holds."""

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
            raise ValueError("choose cpu, cuda or cuda:NUMBER")
        return device

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")


class MethodEntry(StrictSettings):
    """A method that is run, what is set for it alone, and its name in tables. Written as `tent`, `{tent:
    {adaptation_steps: 5}}` or `{name: long tent, tent: {adaptation_steps: 5}}`."""

    name: str
    method: str
    settings: Settings = Field({})

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, written: Any) -> Any:
        if isinstance(written, str):
            written = {written: {}}
        if not isinstance(written, dict) or "method" in written:
            return written
        methods = [key for key in written if key != "name"]
        if len(methods) != 1:
            raise ValueError("name one method, for example {tent: {adaptation_steps: 5}}")
        (method,) = methods
        return {"name": written.get("name", method), "method": method, "settings": written[method] or {}}

    @field_validator("method")
    @classmethod
    def _registered(cls, method: str) -> str:
        if method not in METHODS:
            method_class(method)  # says what is wrong with it
        return method

    @model_serializer
    def _written(self) -> str | Settings:
        if self.name == self.method and not self.settings:
            return self.method
        name = {} if self.name == self.method else {"name": self.name}
        return {**name, self.method: self.settings}


class Experiment(StrictSettings):
    """A scenario, the methods that meet it, and the seeds."""

    scenario: ScenarioSettings = ScenarioSettings()
    protocol: ProtocolSettings = ProtocolSettings()
    methods: tuple[MethodEntry, ...] = Field(
        ("source", "fix-lr-mid", "fed-ade", "fed-ade-plus", "oracle-prior"), min_length=1, validate_default=True
    )
    method: dict[str, Settings] = Field({})
    """What is set for a method by its name, wherever it runs."""
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    execution: ExecutionSettings = ExecutionSettings()

    @field_validator("methods")
    @classmethod
    def _distinct_rows(cls, methods: tuple[MethodEntry, ...]) -> tuple[MethodEntry, ...]:
        rows = {entry.name: entry for entry in methods}
        for entry in methods:
            if rows[entry.name] != entry:
                raise ValueError(f"two rows are called {entry.name!r}; give one of them another name: {{name: ...}}")
        return tuple(rows.values())

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 0 <= seed < 2**63 for seed in seeds):
            raise ValueError("seeds are whole numbers from 0, below 2^63")
        return tuple(dict.fromkeys(seeds))

    @property
    def entry(self) -> MethodEntry:
        """The method of an experiment that has only one."""
        (entry,) = self.methods
        return entry

    @property
    def seed(self) -> int:
        """The seed of an experiment that has only one."""
        (seed,) = self.seeds
        return seed

    def build_method(self, entry: MethodEntry | None = None, measured_rates: tuple[float, ...] = ()) -> "Method":
        """A method with its settings; one that replays a run's learning rates is given them."""
        entry = entry or self.entry
        settings = merged(self.method.get(entry.method, {}), entry.settings)
        return build_method(entry.method, settings | ({"measured_rates": measured_rates} if measured_rates else {}))

    def of_one(self, entry: MethodEntry, seed: int) -> "Experiment":
        """The part of it that is one method and one seed; settings of other methods are left out."""
        settings = {name: settings for name, settings in self.method.items() if name == entry.method}
        return self.model_copy(update={"methods": (entry,), "seeds": (seed,), "method": settings})

    def as_plain(self) -> Settings:
        plain: Settings = json.loads(self.model_dump_json())
        return plain

    def identity(self) -> Settings:
        """The experiment without what is no part of a result: where data lie, and on what it is computed."""
        plain = self.as_plain()
        del plain["execution"], plain["scenario"]["data_dir"]
        if plain["scenario"]["stream"] == ScenarioSettings().stream:
            del plain["scenario"]["stream"]  # results from before there were others keep their address
        return plain


def build_method(name: str, settings: Mapping[str, Any]) -> "Method":
    """A method with its settings; one that it does not have is an error that names the nearest."""
    make = method_class(name)
    try:
        return make(**settings)
    except ValidationError as error:
        raise FedadeError(explain(error, name)) from error


def experiment_from(settings: Mapping[str, Any]) -> Experiment:
    """Validate nested settings; the error names the field, the value and what is allowed."""
    try:
        experiment = Experiment(**settings)
    except ValidationError as error:
        raise FedadeError(explain(error, "")) from error
    for name, own in experiment.method.items():
        build_method(name, own)
    for entry in experiment.methods:
        experiment.build_method(entry)
    return experiment


def merged(*layers: Mapping[str, Any]) -> Settings:
    together: Settings = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(together.get(key), Mapping)
            together[key] = merged(together[key], value) if both else value
    return together


_SHORTLY = reprlib.Repr()
"""A few lines of YAML can stand for gigabytes."""
_SHORTLY.maxlevel, _SHORTLY.maxstring, _SHORTLY.maxother = 2, 200, 200
_PLAINLY = {
    "dict_type": "input should be a group of settings",
    "model_type": "input should be a group of settings",
    "tuple_type": "input should be a list",
}
"""What a user is told where pydantic names types of Python."""


def explain(error: ValidationError, prefix: str) -> str:
    """The first thing that is wrong, in one line."""
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in ((prefix,) if prefix else ()) + first["loc"])
    if first["type"] == "extra_forbidden":
        *groups, key = (str(part) for part in first["loc"])
        known = settings_of(prefix) if prefix and is_method(prefix) else Experiment.model_fields
        return no_such_setting(path, key, path.rpartition(".")[0], _within(known, groups))
    message = (
        _PLAINLY.get(first["type"], first["msg"]).removeprefix("Value error, ").replace("Tuple should", "List should")
    )
    given = "" if isinstance(first["input"], dict | BaseModel) else f" (given: {_SHORTLY.repr(first['input'])})"
    return f"{path}: {message[0].lower()}{message[1:]}{given}"


def _within(known: Mapping[str, FieldInfo], groups: Iterable[str]) -> Mapping[str, FieldInfo]:
    """The settings of a group inside groups; the number of an entry of a list leads no deeper."""
    for group in groups:
        kind = known[group].annotation if group in known else None
        for part in (kind, *get_args(kind)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                known = part.model_fields
    return known


def no_such_setting(path: str, key: str, group: str, known: Iterable[str]) -> str:
    """What is said of a key that a method or another group of settings does not have."""
    return f"{path}: there is no such setting{f' of {group}' if group else ''}{hint(key, known)}"
