"""The tables that compare methods: the paper's first and second, and two of its appendix."""

from collections.abc import Sequence

from fedade.experiments.cell import Cell
from fedade.experiments.suites.grid import Suite, grid
from fedade.experiments.suites.rows import EXTRA, PAPER, PRINTED_ROW, PRINTED_TEXTS_ROW, ROWS, TUNED, YARDSTICKS

BENCHMARKS = ("tiny-imagenet-label", "cifar10-label", "cifar10-c", "cifar100-c")
"""Presets of the paper's image benchmarks."""


def _table1(seeds: Sequence[int]) -> list[Cell]:
    images = grid("table1", (*BENCHMARKS, "cifar100-label"), (*PAPER, PRINTED_ROW, *TUNED, *EXTRA), seeds)
    return [*images, *grid("table1", ("lama-label",), (*PAPER, PRINTED_TEXTS_ROW, *TUNED, *EXTRA), seeds)]


def _table2(seeds: Sequence[int]) -> list[Cell]:
    names = ("fed-ade", "fed-ccfa", "fed-poe", "uda", "unida", "atlas", "fth")
    rows = (*(ROWS[name] for name in names), *TUNED, *YARDSTICKS)
    return [
        cell
        for source in ("gaussian", "exponential")
        for cell in grid("table2", ("cifar10-label",), rows, seeds, changes=_source(source))
    ]


def _table_gaussian(seeds: Sequence[int]) -> list[Cell]:
    return grid("table-gaussian", BENCHMARKS, (*PAPER, *YARDSTICKS), seeds, changes=_source("gaussian"))


def _table_exponential(seeds: Sequence[int]) -> list[Cell]:
    return grid("table-exponential", BENCHMARKS, (*PAPER, *YARDSTICKS), seeds, changes=_source("exponential"))


def _source(distribution: str) -> dict[str, dict[str, str]]:
    return {"scenario": {"source": distribution}}


TABLE1 = Suite("table1", "every method on every benchmark; CIFAR-100 under label shift is ours", _table1)
TABLE2 = Suite("table2", "CIFAR-10 after uneven pre-training, Gaussian and exponential", _table2)
TABLE_GAUSSIAN = Suite("table-gaussian", "appendix: every image benchmark after Gaussian pre-training", _table_gaussian)
TABLE_EXPONENTIAL = Suite(
    "table-exponential", "appendix: every image benchmark after exponential pre-training", _table_exponential
)
