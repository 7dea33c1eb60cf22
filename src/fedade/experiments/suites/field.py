"""Protocols and methods of the field: what comes when is told beside every number, since results hang on it."""

from collections.abc import Sequence

from fedade.experiments.cell import Cell
from fedade.experiments.suites.grid import YARDSTICKS, Suite, SuiteRow, grid
from fedade.experiments.suites.kinds import KINDS, SAMPLES

STREAMS = {
    "drift": ("label", "covariate", "both", "none"),
    "continual": ("covariate", "both"),
    "correlated": ("label", "covariate", "both", "none"),
    "mixed": ("covariate", "both"),
    "once": ("label", "covariate", "both", "none"),
    "own-pace": ("label", "covariate", "both"),
    "late": ("label", "covariate", "both"),
    "markov i1n1": ("both",),
    "markov n1n1": ("both",),
    "markov nunu": ("both",),
}
"""Protocols, with the place in UniTTA's grid after the name, and the kinds under which they differ from the others."""

_METHODS = (
    "bn-adapt", "tent", "sar", "cotta", "atp", "lame", "note", "rotta", "delta", "roid", "tribe", "hybrid-ttn",
    "unitta", "deyo", "poem", "fed-the-plus", "fed-ctta", "pfed-bbn", "fed-tsa", "prior-em", "fed-ade",
    "fed-ade-plus", "fed-ade-plus-federated",
)  # fmt: skip

_ROWS = (
    *YARDSTICKS,
    SuiteRow("batch statistics", "bn-adapt", {"mode": "batch"}),
    *(SuiteRow(name, name) for name in _METHODS),
)


def _protocol(stream: str) -> dict[str, str]:
    """Settings of a protocol by its name here."""
    name, _, place = stream.partition(" ")
    return {"stream": name, **({"markov": place} if place else {})}


def _cells(seeds: Sequence[int]) -> list[Cell]:
    return [
        cell
        for data in ("cifar10", "cifar100")
        for stream, kinds in STREAMS.items()
        for kind in kinds
        for cell in grid(
            "field",
            (f"{data}-{KINDS[kind]}",),
            _ROWS,
            seeds,
            ("lin",),
            changes={"scenario": {"kind": kind, "samples": SAMPLES, **_protocol(stream)}},
            varied={"stream": stream},
        )
    ]


FIELD = Suite(
    "field", "the field's methods under the field's protocols, the protocol beside each number", _cells, (0, 1, 2, 3, 4)
)
