"""Methods by name. A new one is one file and one line here; others may come from outside, by an import path."""

import importlib
import inspect
import sys
from collections import UserDict
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from pydantic.fields import FieldInfo

from fedade.core.choices import hint
from fedade.core.errors import FedadeError
from fedade.core.identity import digest
from fedade.core.importing import OptionalModule, import_attribute

if TYPE_CHECKING:
    from fedade.core.method import Method

contract: Any = OptionalModule("fedade.core.method")


class MethodPath:
    """Where a method is, and what a name sets for it; it is imported when it is asked for."""

    def __init__(self, path: str, **settings: Any) -> None:
        self._path = path
        self._settings = settings

    def make(self) -> "Callable[..., Method]":
        module, _, name = self._path.partition(":")
        kind: Callable[..., Method] = getattr(importlib.import_module(f"fedade.methods.{module}"), name)
        return partial(kind, **self._settings) if self._settings else kind


class LazyMethods(UserDict[str, Any]):
    """Methods by name; names are known without importing any, since PyTorch takes seconds."""

    def __getitem__(self, name: str) -> "Callable[..., Method]":
        path: MethodPath = self.data[name]
        return path.make()


METHODS = LazyMethods(
    {
        "source": MethodPath("source:Source"),
        "fed-ade": MethodPath("fed_ade:FedAde"),
        "fed-ade-plus": MethodPath("fed_ade_plus.method:FedAdePlus"),
        "fed-ade-plus-federated": MethodPath("fed_ade_plus.federated:FedAdePlusFederated"),
        "fed-ade-release": MethodPath("fed_ade_release:FedAdeRelease"),
        "fix-lr-low": MethodPath("fed_ade:FedAde", pace="low"),
        "fix-lr-mid": MethodPath("fed_ade:FedAde", pace="mid"),
        "fix-lr-high": MethodPath("fed_ade:FedAde", pace="high"),
        "fix-lr-mean": MethodPath("fed_ade:FedAde", pace="mean"),
        "shuffled-lr": MethodPath("fed_ade:FedAde", pace="shuffled"),
        "fth": MethodPath("fth:Fth"),
        "ftfwh": MethodPath("fth:Fth", window=100),
        "atlas": MethodPath("atlas:Atlas"),
        "uogd": MethodPath("atlas:Atlas", pool="single"),
        "rogd": MethodPath("rogd:Rogd"),
        "flh-ftl": MethodPath("flh_ftl:FlhFtl"),
        "prior-bbse": MethodPath("prior_reweighting:PriorReweighting"),
        "prior-em": MethodPath("prior_reweighting:PriorReweighting", prior="mlls"),
        "uda": MethodPath("uda:Uda"),
        "unida": MethodPath("unida:Unida"),
        "bn-adapt": MethodPath("bn_adapt:BnAdapt"),
        "tent": MethodPath("tent:Tent"),
        "sar": MethodPath("sar:Sar"),
        "cotta": MethodPath("cotta:Cotta"),
        "atp": MethodPath("atp:Atp"),
        "lame": MethodPath("lame:Lame"),
        "note": MethodPath("note:Note"),
        "rotta": MethodPath("rotta:Rotta"),
        "delta": MethodPath("delta:Delta"),
        "roid": MethodPath("roid:Roid"),
        "deyo": MethodPath("deyo:Deyo"),
        "hybrid-ttn": MethodPath("hybrid_ttn:HybridTtn"),
        "tribe": MethodPath("tribe:Tribe"),
        "poem": MethodPath("poem:Poem"),
        "unitta": MethodPath("unitta:Unitta"),
        "fed-ctta": MethodPath("fed_ctta:FedCtta"),
        "pfed-bbn": MethodPath("pfed_bbn:PfedBbn"),
        "fed-the-plus": MethodPath("fed_the_plus:FedThePlus"),
        "fed-tsa": MethodPath("fed_tsa:FedTsa"),
        "fed-poe": MethodPath("fed_poe:FedPoe"),
        "fed-ccfa": MethodPath("fed_ccfa.method:FedCcfa"),
        "fed-avg": MethodPath("fed_avg:FedAvg"),
        "fed-rep": MethodPath("fed_rep:FedRep"),
        "ditto": MethodPath("ditto:Ditto"),
        "fed-pseudo": MethodPath("fed_pseudo:FedPseudo"),
        "oracle-prior": MethodPath("prior_reweighting:OraclePrior"),
        "oracle-finetune": MethodPath("oracle_finetune:OracleFinetune"),
        "fed-poe-oracle": MethodPath("fed_poe:FedPoe", labels="oracle"),
        "fed-ccfa-oracle": MethodPath("fed_ccfa.method:FedCcfa", labels="oracle"),
    }
)


ENTRY_POINTS = "fedade.methods"
"""The group under which installed packages name methods of theirs."""


def installed_methods() -> dict[str, str]:
    """Methods of installed packages: names and import paths. None of them can take the name of one of ours."""
    points = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    return {name: path for name, path in points.items() if name not in METHODS}


def is_method(name: str) -> bool:
    """Whether a name is a method's, or the import path of one, which may still be wrong."""
    return name in METHODS or ":" in name or name in installed_methods()


def method_class(name: str) -> "Callable[..., Method]":
    """What makes a method: registered here or by an installed package, or a class at `package.module:Class`."""
    if name in METHODS:
        return METHODS[name]
    path = name if ":" in name else installed_methods().get(name)
    if path is None:
        raise FedadeError(f"unknown method {name!r}{hint(name, [*METHODS, *installed_methods()])}")
    make = import_attribute(path, f"method {name}", "package.module:Class")
    kind = getattr(make, "func", make)
    if not (isinstance(kind, type) and issubclass(kind, contract.Method)):
        raise FedadeError(
            f"method {name} is a {type(make).__name__}; it must be a class that derives from fedade.Method"
        )
    missing = sorted(getattr(kind, "__abstractmethods__", ()))
    if not hasattr(kind, "about") and getattr(kind, "card", None) is contract.Method.card:
        missing.insert(0, "about")
    if missing:
        raise FedadeError(f"method {name} lacks {', '.join(missing)}; docs/your-method.md shows a whole one")
    chosen: Callable[..., Method] = make
    return chosen


def settings_of(name: str) -> Mapping[str, FieldInfo]:
    make: Any = method_class(name)
    fields: Mapping[str, FieldInfo] = getattr(make, "func", make).model_fields
    return fields


def code_digest(name: str) -> str | None:
    """A name for the text of a method from outside, so that a changed one is run again; None for those here."""
    if name in METHODS:
        return None
    make: Any = method_class(name)
    modules = {kind.__module__ for kind in getattr(make, "func", make).__mro__}
    outside = sorted(module for module in modules if module.partition(".")[0] not in _NOT_OUTSIDE)
    return digest(*(_text(module) for module in outside))


_NOT_OUTSIDE = ("fedade", "pydantic", "builtins", "abc", "typing")


def _text(module: str) -> bytes:
    try:
        return inspect.getsource(sys.modules[module]).encode()
    except (OSError, TypeError):  # there is none, as of what was typed into an interpreter
        return module.encode()
