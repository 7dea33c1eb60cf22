"""Every kind of shift: which method can be used without knowing it, and what each part of Fed-ADE+ does."""

from collections.abc import Sequence

from fedade.experiments.cell import Cell
from fedade.experiments.suites.grid import PAPER, PAPER_SCHEDULES, YARDSTICKS, Suite, SuiteRow, grid

KINDS = {"label": "label", "covariate": "c", "both": "c", "none": "label"}
"""Kinds of shift, and the presets whose images they stream: `c` are those that can be corrupted."""

SAMPLES, FEW_SAMPLES = 50, 10

_UNSUPERVISED = (
    *PAPER,
    *(SuiteRow(name, name) for name in ("prior-bbse", "prior-em", "flh-ftl", "bn-adapt")),
    SuiteRow("batch statistics", "bn-adapt", {"mode": "batch"}),
    *(SuiteRow(name, name) for name in ("tent", "sar", "cotta", "atp", "fed-ade-plus")),
)

_PARTS = (
    SuiteRow("Fed-ADE+", "fed-ade-plus"),
    SuiteRow("w/o memory of the prior", "fed-ade-plus", {"track": False}),
    SuiteRow("w/o memory of statistics", "fed-ade-plus", {"memory": 0}),
    SuiteRow("w/o correction", "fed-ade-plus", {"correction": "none"}),
    SuiteRow("plain batch statistics", "fed-ade-plus", {"correction": "batch"}),
    SuiteRow("w/o reweighting", "fed-ade-plus", {"reweighting": False}),
    SuiteRow("with gradient steps", "fed-ade-plus", {"gradient_steps": True}),
    SuiteRow("with gradient steps, not shared", "fed-ade-plus", {"gradient_steps": True, "share": False}),
)


def _cells(
    suite: str, dataset: str, rows: Sequence[SuiteRow], seeds: Sequence[int], schedules: Sequence[str], samples: int
) -> list[Cell]:
    return [
        cell
        for kind, images in KINDS.items()
        for cell in grid(
            suite,
            (f"{dataset}-{images}",),
            rows,
            seeds,
            # Without a shift a schedule says nothing.
            schedules[:1] if kind == "none" else schedules,
            changes={"scenario": {"kind": kind, "samples": samples}},
            varied={"samples": samples},
        )
    ]


def _kinds(seeds: Sequence[int]) -> list[Cell]:
    rows = (*_UNSUPERVISED, *YARDSTICKS)
    cells = [
        cell
        for data in ("cifar10", "cifar100")
        for cell in _cells("kinds", data, rows, seeds, PAPER_SCHEDULES, SAMPLES)
    ]
    return [*cells, *_cells("kinds", "cifar10", rows, seeds, PAPER_SCHEDULES, FEW_SAMPLES)]


def _parts(seeds: Sequence[int]) -> list[Cell]:
    return _cells("kinds-parts", "cifar10", (*_PARTS, *YARDSTICKS), seeds, ("lin", "squ"), SAMPLES)


KINDS_OF_SHIFT = Suite(
    "kinds", "every method under label shift, covariate shift, both and none, also with small batches", _kinds,
    (0, 1, 2, 3, 4),
)  # fmt: skip
KINDS_PARTS = Suite("kinds-parts", "Fed-ADE+ with a part more or less, under every kind of shift", _parts)
