"""Methods by name. A new one is one file and one line here; others may come from outside, by an import path."""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from pydantic.fields import FieldInfo

from fedade.core.choices import hint
from fedade.core.errors import FedadeError
from fedade.core.identity import digest
from fedade.core.importing import import_attribute
from fedade.core.optional import OptionalModule

if TYPE_CHECKING:
    from fedade.core.method import Method

contract: Any = OptionalModule("fedade.core.method")


class Place:
    """Where a method is, and what a name sets for it; it is imported when it is asked for."""

    def __init__(self, path: str, **settings: Any) -> None:
        self._path = path
        self._settings = settings

    def make(self) -> "Callable[..., Method]":
        """The class, or the class with its settings."""
        module, _, name = self._path.partition(":")
        kind: Callable[..., Method] = getattr(importlib.import_module(f"fedade.methods.{module}"), name)
        return partial(kind, **self._settings) if self._settings else kind


class LazyMethods(Mapping[str, "Callable[..., Method]"]):
    """Methods by name; names are known without importing any, since PyTorch takes seconds."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> "Callable[..., Method]":
        return self._places[name].make()

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


METHODS = LazyMethods(
    {
        "source": Place("source:Source"),
        "fed-ade": Place("fed_ade:FedAde"),
        "fed-ade-plus": Place("fed_ade_plus.method:FedAdePlus"),
        "fed-ade-release": Place("fed_ade_release:FedAdeRelease"),
        "fix-lr-low": Place("fed_ade:FedAde", pace="low"),
        "fix-lr-mid": Place("fed_ade:FedAde", pace="mid"),
        "fix-lr-high": Place("fed_ade:FedAde", pace="high"),
        "fix-lr-mean": Place("fed_ade:FedAde", pace="mean"),
        "shuffled-lr": Place("fed_ade:FedAde", pace="shuffled"),
        "fth": Place("fth:Fth"),
        "ftfwh": Place("fth:Fth", window=100),
        "atlas": Place("atlas.method:Atlas"),
        "uogd": Place("atlas.method:Atlas", pool="single"),
        "rogd": Place("rogd.method:Rogd"),
        "flh-ftl": Place("flh_ftl.method:FlhFtl"),
        "prior-bbse": Place("prior_reweighting:PriorReweighting"),
        "prior-em": Place("prior_reweighting:PriorReweighting", prior="mlls"),
        "uda": Place("uda.method:Uda"),
        "unida": Place("unida.method:Unida"),
        "bn-adapt": Place("bn_adapt:BnAdapt"),
        "tent": Place("tent:Tent"),
        "sar": Place("sar:Sar"),
        "cotta": Place("cotta:Cotta"),
        "atp": Place("atp:Atp"),
        "lame": Place("lame:Lame"),
        "note": Place("note:Note"),
        "rotta": Place("rotta:Rotta"),
        "delta": Place("delta:Delta"),
        "roid": Place("roid:Roid"),
        "deyo": Place("deyo:Deyo"),
        "hybrid-ttn": Place("hybrid_ttn:HybridTtn"),
        "tribe": Place("tribe:Tribe"),
        "poem": Place("poem:Poem"),
        "unitta": Place("unitta:Unitta"),
        "fed-ctta": Place("fed_ctta:FedCtta"),
        "pfed-bbn": Place("pfed_bbn:PfedBbn"),
        "fed-the-plus": Place("fed_the_plus:FedThePlus"),
        "fed-tsa": Place("fed_tsa:FedTsa"),
        "fed-poe": Place("fed_poe:FedPoe"),
        "fed-ccfa": Place("fed_ccfa.method:FedCcfa"),
        "fed-avg": Place("fed_avg:FedAvg"),
        "fed-rep": Place("fed_rep:FedRep"),
        "ditto": Place("ditto:Ditto"),
        "fed-pseudo": Place("fed_pseudo:FedPseudo"),
        "oracle-prior": Place("oracle_prior:OraclePrior"),
        "oracle-finetune": Place("oracle_finetune:OracleFinetune"),
        "fed-poe-oracle": Place("fed_poe:FedPoe", labels="oracle"),
        "fed-ccfa-oracle": Place("fed_ccfa.method:FedCcfa", labels="oracle"),
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
    chosen: Callable[..., Method] = make
    return chosen


def settings_of(name: str) -> Mapping[str, FieldInfo]:
    """The settings that a method has."""
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
