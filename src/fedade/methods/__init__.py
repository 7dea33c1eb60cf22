"""Methods by name. A new one is one file and one line here."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic.fields import FieldInfo

from fedade.core.method import Method
from fedade.methods.atlas.method import Atlas
from fedade.methods.atp import Atp
from fedade.methods.bn_adapt import BnAdapt
from fedade.methods.cotta.method import Cotta
from fedade.methods.ditto import Ditto
from fedade.methods.fed_ade import FedAde
from fedade.methods.fed_ade_plus.method import FedAdePlus
from fedade.methods.fed_ade_release import FedAdeRelease
from fedade.methods.fed_avg import FedAvg
from fedade.methods.fed_ccfa.method import FedCcfa
from fedade.methods.fed_poe import FedPoe
from fedade.methods.fed_pseudo import FedPseudo
from fedade.methods.fed_rep import FedRep
from fedade.methods.flh_ftl.method import FlhFtl
from fedade.methods.fth import Fth
from fedade.methods.oracle_finetune import OracleFinetune
from fedade.methods.oracle_prior import OraclePrior
from fedade.methods.prior_reweighting import PriorReweighting
from fedade.methods.rogd.method import Rogd
from fedade.methods.sar import Sar
from fedade.methods.source import Source
from fedade.methods.tent import Tent
from fedade.methods.uda.method import Uda
from fedade.methods.unida.method import Unida

METHODS: Mapping[str, Callable[..., Method]] = {
    "source": Source,
    "fed-ade": FedAde,
    "fed-ade-plus": FedAdePlus,
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


def settings_of(name: str) -> Mapping[str, FieldInfo]:
    """The settings that a registered method has."""
    make: Any = METHODS[name]
    fields: Mapping[str, FieldInfo] = getattr(make, "func", make).model_fields
    return fields
