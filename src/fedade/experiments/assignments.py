"""`--set key.path=value`, and the keys of version 0.1 that are still understood."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import yaml

from fedade.core.errors import FedadeError
from fedade.experiments.settings import Settings, merged
from fedade.methods import is_method

_MOVED = {
    "rounds": "protocol", "participation": "protocol", "score_fresh": "protocol", "scored_clients": "protocol",
    "client_map": "execution", "precision": "execution", "cuda_graphs": "execution", "client_state": "execution",
}  # fmt: skip
"""Where the settings of 0.1's group `federation` are now."""


def with_setting(settings: Mapping[str, Any], assignment: str) -> Settings:
    """Nested settings with one `key.path=value` on top; the value is read as YAML. A path may begin with a method's
    name: `tent.views` is `method.tent.views`."""
    path, equals, text = assignment.partition("=")
    if not equals or not path:
        raise FedadeError(f"--set {assignment}: expected key=value, for example --set scenario.alpha=0.5")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FedadeError(f"--set {path}: {text!r} is not a value") from error
    if isinstance(value, str):
        value = _number(value)
    return _assigned(settings, _keys(path.strip()), value, path)


def _keys(path: str) -> list[str]:
    """Where a path leads: a method's settings, if it begins with its name or with `package.module:Class`."""
    module, colon, rest = path.partition(":")
    first, *others = rest.split(".") if colon else path.split(".")
    name = f"{module}:{first}" if colon else first
    return ["method", name, *others] if is_method(name) else [name, *others]


def refuse_idle(assignments: Sequence[str], methods: Sequence[str]) -> None:
    """Refuse `METHOD.KEY=VALUE` for a method that does not run: whoever wrote it expects it to matter."""
    for assignment in assignments:
        first, *rest = _keys(assignment.partition("=")[0].strip())
        if first == "method" and rest and is_method(rest[0]) and rest[0] not in methods:
            raise FedadeError(
                f"--set {assignment}: {rest[0]} does not run; add --method {rest[0]}, or set it for one of "
                f"{', '.join(dict.fromkeys(methods))}"
            )


def _number(text: str) -> Any:
    """YAML 1.1 reads 1e-4 as text; people mean a number."""
    try:
        return float(text)
    except ValueError:
        return text


def _assigned(settings: Mapping[str, Any], keys: list[str], value: Any, path: str) -> Settings:
    inner = value
    if len(keys) > 1:
        below = settings.get(keys[0], {})
        if not isinstance(below, Mapping):
            raise FedadeError(f"--set {path}: {keys[0]} is a value, not a group of settings")
        inner = _assigned(below, keys[1:], value, path)
    return {**settings, keys[0]: inner}


@cache
def _warn_once(line: str) -> None:
    sys.stderr.write(f"fedade: {line}\n")


def in_present_words(settings: Mapping[str, Any]) -> Settings:
    """Settings with the keys of 0.1 (`federation.KEY`, `method.KEY`) where they are now, and a line for each."""
    old = settings.get("federation")
    if not isinstance(old, Mapping):  # there is none, or it is no group, which is told later
        return _methods_in_present_words(dict(settings))
    present = {key: value for key, value in settings.items() if key != "federation"}
    for key, value in old.items():
        group = _MOVED.get(key)
        if group is None:
            raise FedadeError(f"federation.{key}: there is no such setting; docs/configuration.md shows all")
        _warn_once(f"federation.{key} is {group}.{key} now; fedade 0.3 will not understand the old name")
        present = _assigned(present, [group, key], value, key)
    return _methods_in_present_words(present)


def _methods_in_present_words(settings: Settings) -> Settings:
    own = settings.get("method")
    if not isinstance(own, Mapping):
        return settings
    old = {key: value for key, value in own.items() if not is_method(key)}
    if not old:
        return settings
    rows = settings.get("methods")
    names = [_name(entry) for entry in (rows if isinstance(rows, Sequence) else ())]
    if len(set(names)) != 1 or not is_method(names[0]):
        key = next(iter(old))
        raise FedadeError(f"method.{key}: say which method's, for example fed-ade.{key}")
    (name,) = set(names)
    for key in old:
        _warn_once(f"method.{key} is {name}.{key} now; fedade 0.3 will not understand the old name")
    kept = {key: value for key, value in own.items() if is_method(key)}
    return {**settings, "method": {**kept, name: merged(kept.get(name, {}), old)}}


def _name(entry: Any) -> str:
    if isinstance(entry, Mapping):
        return next((str(key) for key in entry if key != "name"), "")
    return str(getattr(entry, "method", entry))
