"""Suites by name: the paper's tables and figures, each a list of cells."""

from collections.abc import Mapping

from fedade.core.errors import FedadeError
from fedade.experiments.suites import kinds, paper, small
from fedade.experiments.suites.grid import Suite

_IN_ORDER = (
    small.SMOKE, paper.TABLE1, paper.TABLE2, paper.TABLE_GAUSSIAN, paper.TABLE_EXPONENTIAL, paper.TABLE3, paper.TABLE4,
    kinds.FED_ADE, paper.FIG_LR, paper.FIG_BOUNDS, paper.FIG_SCHEDULES, paper.FIG_DIRICHLET, paper.FIG_LABELLED,
    kinds.KINDS_OF_SHIFT, kinds.KINDS_PARTS, kinds.FIELD, small.THEORY,
)  # fmt: skip
SUITES: Mapping[str, Suite] = {suite.name: suite for suite in _IN_ORDER}


def suite_of(name: str) -> Suite:
    """A suite by its name; an unknown name is an error that lists the known ones."""
    if name not in SUITES:
        raise FedadeError(f"there is no suite {name!r}; choose from {', '.join(SUITES)}")
    return SUITES[name]
