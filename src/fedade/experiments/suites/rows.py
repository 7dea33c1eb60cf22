"""Rows that several tables have."""

from fedade.experiments.suites.grid import Row
from fedade.reporting.names import METHODS

ROWS = {method: Row(name, method) for method, name in METHODS.items()}
"""The ten methods of the paper's first table, by their registered names."""

PAPER = tuple(ROWS.values())
"""The same in the paper's order."""

YARDSTICKS = (Row("source", "source"), Row("oracle-prior", "oracle-prior"))
"""No adaptation, and what knowing the true class frequencies would give: most gains lie between the two."""

EXTRA = (
    *YARDSTICKS,
    Row("prior-bbse", "prior-bbse"),
    Row("prior-em", "prior-em"),
    Row("flh-ftl", "flh-ftl"),
    Row("bn-adapt", "bn-adapt"),
    Row("tent", "tent"),
    Row("fed-ade-release", "fed-ade-release"),
    Row("fix-lr-mean", "fix-lr-mean"),
    Row("shuffled-lr", "shuffled-lr"),
    Row("oracle-finetune", "oracle-finetune"),
)
"""Rows that the paper does not have, without which its table cannot be read."""
