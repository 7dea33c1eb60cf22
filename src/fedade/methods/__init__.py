"""Methods by name. A new one is one file and one line here."""

from collections.abc import Callable, Mapping
from functools import partial

from fedade.core.method import Method
from fedade.methods.fed_ade import FedAde
from fedade.methods.fed_ade_release import FedAdeRelease
from fedade.methods.oracle_prior import OraclePrior
from fedade.methods.source import Source

METHODS: Mapping[str, Callable[..., Method]] = {
    "source": Source,
    "fed-ade": FedAde,
    "fed-ade-release": FedAdeRelease,
    "fix-lr-low": partial(FedAde, pace="low"),
    "fix-lr-mid": partial(FedAde, pace="mid"),
    "fix-lr-high": partial(FedAde, pace="high"),
    "oracle-prior": OraclePrior,
}
