"""Settings as rows of a table, from the pydantic models that check them."""

import json
from collections.abc import Iterator
from inspect import get_annotations
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer

SAME_EVERYWHERE = {
    "batch_size": "samples of a gradient step",
    "joint_epochs": "epochs of the joint step on shared and personal layers, per round",
    "learning_rate": "of the gradient steps",
    "objective": "the label-free loss",
    "optimiser": "how gradients become steps",
    "pace": "whether the rate follows the shift signals, or is fixed at one of `rate`",
    "personal_epochs": "epochs of the personal step on the head, per round",
    "prior": "how the class frequencies of a batch are estimated",
    "rate": "bounds of the learning rate",
}
"""What a setting means in every method that has it, where the method says no more."""

_BOUNDS = {Ge: ("ge", "≥"), Gt: ("gt", ">"), Le: ("le", "≤"), Lt: ("lt", "<")}


class SettingRow(NamedTuple):
    """A setting as a reader needs it."""

    key: str
    values: str
    default: str
    meaning: str


def setting_rows(
    model: type[BaseModel], prefix: str = "", preset: dict[str, Any] | None = None
) -> Iterator[SettingRow]:
    """A row per setting; groups of settings are taken apart. `preset` are defaults that a variant has of its own."""
    for name, field in model.model_fields.items():
        default = (preset or {}).get(name, field.default)
        if isinstance(default, BaseModel):
            yield from setting_rows(type(default), f"{prefix}{name}.", dict(default))
        else:
            yield SettingRow(prefix + name, accepted(field), as_yaml(default), _meaning(model, name))


def as_yaml(value: Any) -> str:
    """A default as a file of settings would hold it."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def accepted(field: FieldInfo) -> str:
    """Which values a setting takes, in words."""
    bounds = " and ".join(
        f"{sign} {getattr(limit, name):g}"
        for limit in field.metadata
        for kind, (name, sign) in _BOUNDS.items()
        if isinstance(limit, kind)
    )
    return " ".join(filter(None, (_kind(field.annotation), bounds)))


def _kind(annotation: Any) -> str:
    if annotation is NoneType:
        return "`null`"
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(map(_kind, get_args(annotation)))
    if get_origin(annotation) in (tuple, list):
        return f"list of {_kind(get_args(annotation)[0])}"
    names = {bool: "`true`, `false`", int: "whole number", float: "number", str: "text"}
    return names.get(annotation, "value")


def _meaning(model: type[BaseModel], name: str) -> str:
    """What the docstring under the field says, in the nearest class that has one."""
    for owner in model.__mro__:
        if name in get_annotations(owner) and (said := _documented(owner.__module__, owner.__name__, name)):
            return said
    return SAME_EVERYWHERE.get(name, "")


def _documented(module: str, owner: str, name: str) -> str:
    try:
        documented = ModuleAnalyzer.for_module(module).find_attr_docs()
    except PycodeError:  # there is no text, as of classes that pydantic makes
        return ""
    return " ".join(documented.get((owner.partition("[")[0], name), ())).strip()
