"""Rows that several tables have."""

from fedade.experiments.presets import PRINTED, PRINTED_TEXTS
from fedade.experiments.suites.grid import SuiteRow
from fedade.reporting.names import METHODS

ROWS = {method: SuiteRow(name, method) for method, name in METHODS.items()}
"""The ten methods of the paper's first table, by their registered names."""

PAPER = tuple(ROWS.values())
"""The ten methods in the paper's order."""

PRINTED_ROW = SuiteRow("Fed-ADE (as printed)", "fed-ade", PRINTED)
PRINTED_TEXTS_ROW = SuiteRow("Fed-ADE (as printed)", "fed-ade", PRINTED_TEXTS)
TUNED = tuple(
    SuiteRow(f"{ROWS[name].name} (tuned)", name, {"constants": "calibrated"})
    for name in ("fed-ccfa", "fed-poe", "uda", "unida")
)
"""The paper's other methods that have a rate, with as many trials for it as Fed-ADE has; their plain rows have the
published constants."""

YARDSTICKS = (SuiteRow("source", "source"), SuiteRow("oracle-prior", "oracle-prior"))
"""No adaptation, and what knowing the true class frequencies would give: most gains lie between the two."""

EXTRA = (
    *YARDSTICKS,
    SuiteRow("prior-bbse", "prior-bbse"),
    SuiteRow("prior-em", "prior-em"),
    SuiteRow("flh-ftl", "flh-ftl"),
    SuiteRow("bn-adapt", "bn-adapt"),
    SuiteRow("tent", "tent"),
    SuiteRow("fed-ade-release", "fed-ade-release"),
    SuiteRow("fix-lr-mean", "fix-lr-mean"),
    SuiteRow("shuffled-lr", "shuffled-lr"),
    SuiteRow("oracle-finetune", "oracle-finetune"),
)
"""Rows that the paper does not have, without which its table cannot be read."""
