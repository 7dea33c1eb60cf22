"""Suites by name: the paper's tables and figures, each a list of cells."""

from collections.abc import Mapping

from fedade.core.errors import FedadeError
from fedade.experiments.suites.comparisons import TABLE1, TABLE2, TABLE3, TABLE4, TABLE_EXPONENTIAL, TABLE_GAUSSIAN
from fedade.experiments.suites.fed_ade import FED_ADE
from fedade.experiments.suites.figures import FIG_BOUNDS, FIG_DIRICHLET, FIG_LABELLED, FIG_LR, FIG_SCHEDULES
from fedade.experiments.suites.grid import Suite
from fedade.experiments.suites.kinds import FIELD, KINDS_OF_SHIFT, KINDS_PARTS
from fedade.experiments.suites.small import SMOKE, THEORY

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        SMOKE,
        TABLE1,
        TABLE2,
        TABLE_GAUSSIAN,
        TABLE_EXPONENTIAL,
        TABLE3,
        TABLE4,
        FED_ADE,
        FIG_LR,
        FIG_BOUNDS,
        FIG_SCHEDULES,
        FIG_DIRICHLET,
        FIG_LABELLED,
        KINDS_OF_SHIFT,
        KINDS_PARTS,
        FIELD,
        THEORY,
    )
}


def suite_of(name: str) -> Suite:
    """A suite by its name; an unknown name is an error that lists the known ones."""
    if name not in SUITES:
        raise FedadeError(f"there is no suite {name!r}; choose from {', '.join(SUITES)}")
    return SUITES[name]
