"""Methods by name. A new one is one file and one line here; others may come from outside, by an import path."""

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import entry_points
from typing import Any

from pydantic.fields import FieldInfo

from fedade.core.choices import hint
from fedade.core.errors import FedadeError
from fedade.core.identity import digest
from fedade.core.importing import import_attribute
from fedade.core.method import Method
from fedade.methods.atlas.method import Atlas
from fedade.methods.atp import Atp
from fedade.methods.bn_adapt import BnAdapt
from fedade.methods.cotta import Cotta
from fedade.methods.delta import Delta
from fedade.methods.deyo import Deyo
from fedade.methods.ditto import Ditto
from fedade.methods.fed_ade import FedAde
from fedade.methods.fed_ade_plus.federated import FedAdePlusFederated
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.methods.fed_ade_release import FedAdeRelease
from fedade.methods.fed_avg import FedAvg
from fedade.methods.fed_ccfa.method import FedCcfa
from fedade.methods.fed_ctta import FedCtta
from fedade.methods.fed_poe import FedPoe
from fedade.methods.fed_pseudo import FedPseudo
from fedade.methods.fed_rep import FedRep
from fedade.methods.fed_the_plus import FedThePlus
from fedade.methods.fed_tsa import FedTsa
from fedade.methods.flh_ftl.method import FlhFtl
from fedade.methods.fth import Fth
from fedade.methods.hybrid_ttn import HybridTtn
from fedade.methods.lame import Lame
from fedade.methods.note import Note
from fedade.methods.oracle_finetune import OracleFinetune
from fedade.methods.oracle_prior import OraclePrior
from fedade.methods.pfed_bbn import PfedBbn
from fedade.methods.poem import Poem
from fedade.methods.prior_reweighting import PriorReweighting
from fedade.methods.rogd.method import Rogd
from fedade.methods.roid import Roid
from fedade.methods.rotta import Rotta
from fedade.methods.sar import Sar
from fedade.methods.source import Source
from fedade.methods.tent import Tent
from fedade.methods.tribe import Tribe
from fedade.methods.uda.method import Uda
from fedade.methods.unida.method import Unida
from fedade.methods.unitta import Unitta

METHODS: Mapping[str, Callable[..., Method]] = {
    "source": Source,
    "fed-ade": FedAde,
    "fed-ade-plus": FedAdePlus,
    "fed-ade-plus-federated": FedAdePlusFederated,
    "fed-ade-release": FedAdeRelease,
    "fix-lr-low": partial(FedAde, pace="low"),
    "fix-lr-mid": partial(FedAde, pace="mid"),
    "fix-lr-high": partial(FedAde, pace="high"),
    "fix-lr-mean": partial(FedAde, pace="mean"),
    "shuffled-lr": partial(FedAde, pace="shuffled"),
    "fth": Fth,
    "ftfwh": partial(Fth, window=100),
    "atlas": Atlas,
    "uogd": partial(Atlas, pool="single"),
    "rogd": Rogd,
    "flh-ftl": FlhFtl,
    "prior-bbse": PriorReweighting,
    "prior-em": partial(PriorReweighting, prior="mlls"),
    "uda": Uda,
    "unida": Unida,
    "bn-adapt": BnAdapt,
    "tent": Tent,
    "sar": Sar,
    "cotta": Cotta,
    "atp": Atp,
    "lame": Lame,
    "note": Note,
    "rotta": Rotta,
    "delta": Delta,
    "roid": Roid,
    "deyo": Deyo,
    "hybrid-ttn": HybridTtn,
    "tribe": Tribe,
    "poem": Poem,
    "unitta": Unitta,
    "fed-ctta": FedCtta,
    "pfed-bbn": PfedBbn,
    "fed-the-plus": FedThePlus,
    "fed-tsa": FedTsa,
    "fed-poe": FedPoe,
    "fed-ccfa": FedCcfa,
    "fed-avg": FedAvg,
    "fed-rep": FedRep,
    "ditto": Ditto,
    "fed-pseudo": FedPseudo,
    "oracle-prior": OraclePrior,
    "oracle-finetune": OracleFinetune,
    "fed-poe-oracle": partial(FedPoe, labels="oracle"),
    "fed-ccfa-oracle": partial(FedCcfa, labels="oracle"),
}


ENTRY_POINTS = "fedade.methods"
"""The group under which installed packages name methods of theirs."""


def installed_methods() -> dict[str, str]:
    """Methods of installed packages: names and import paths. None of them can take the name of one of ours."""
    points = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
    return {name: path for name, path in points.items() if name not in METHODS}


def is_method(name: str) -> bool:
    """Whether a name is a method's, or the import path of one, which may still be wrong."""
    return name in METHODS or ":" in name or name in installed_methods()


def method_class(name: str) -> Callable[..., Method]:
    """What makes a method: registered here or by an installed package, or a class at `package.module:Class`."""
    if name in METHODS:
        return METHODS[name]
    path = name if ":" in name else installed_methods().get(name)
    if path is None:
        raise FedadeError(f"unknown method {name!r}{hint(name, [*METHODS, *installed_methods()])}")
    make = import_attribute(path, f"method {name}", "package.module:Class")
    kind = getattr(make, "func", make)
    if not (isinstance(kind, type) and issubclass(kind, Method)):
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
