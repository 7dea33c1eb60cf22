"""The paper's names for what labels say; the one place where the two meet."""

from collections.abc import Mapping

from fedade.reporting.outcomes import Label

METHODS: Mapping[str, str] = {
    "fth": "FTH", "atlas": "ATLAS", "unida": "UNIDA", "uda": "UDA", "fed-poe": "Fed-POE", "fed-ccfa": "FedCCFA",
    "fix-lr-low": "FixLR(Low)", "fix-lr-mid": "FixLR(Mid)", "fix-lr-high": "FixLR(High)", "fed-ade": "Fed-ADE",
}  # fmt: skip
"""Registered methods and the paper's rows, in the order of its table 1."""
MEASURES: Mapping[str, str] = {
    "cosine": "Fed-ADE (Cosine similarity)", "kl": "KL divergence", "wasserstein": "Wasserstein",
    "bocpd": "Bayesian CPD",
}  # fmt: skip
"""Measures and the rows of table 3."""
ESTIMATORS: Mapping[str, str] = {
    "Fed-ADE": "Fed-ADE (full)", "w/o S_unc": "w/o S_unc", "w/o S_rep": "w/o S_rep", "FixLR(Mid)": "Fixed LR",
}  # fmt: skip
"""Rows and what table 4 calls them."""
DATASETS: Mapping[str, str] = {
    "tiny-imagenet": "Tiny ImageNet", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "lama": "LAMA",
    "cifar10-c": "CIFAR-10-C", "cifar100-c": "CIFAR-100-C",
}  # fmt: skip
BENCHMARKS: Mapping[str, str] = {"lama-trex": "lama"}
"""Datasets whose label is not their name, because the paper's benchmark is one part of them."""
KINDS: Mapping[str, str] = {
    "label": "label shift", "covariate": "covariate shift", "both": "label and covariate shift", "none": "no shift",
}  # fmt: skip
SOURCES: Mapping[str, str] = {
    "uniform": "uniform source", "gaussian": "Gaussian source", "exponential": "exponential-decay source",
}  # fmt: skip
SCHEDULES: Mapping[str, str] = {"lin": "Lin.", "sin": "Sin.", "squ": "Squ.", "ber": "Ber."}
_VALUES = {"dataset": DATASETS, "kind": KINDS, "source": SOURCES, "schedule": SCHEDULES, "row": METHODS}
_LETTERS: Mapping[str, str] = {"low": "η_min", "high": "η_max", "alpha": "α", "timesteps": "T"}
_REFERENCES = (METHODS["fed-ade"], MEASURES["cosine"], ESTIMATORS["Fed-ADE"])
PAPER_BOUNDS = {"low": 5e-6, "high": 1e-4}
"""Fed-ADE's lowest and highest rate in the paper's tables."""


def title(label: str, value: Label) -> str:
    """A label's value as tables print it; `low=5e-06` is `η_min=5e-06`."""
    if label in _VALUES:
        return _VALUES[label].get(str(value), str(value))
    return f"{_LETTERS.get(label, label)}={f'{value:g}' if isinstance(value, float) else value}"


def place(label: str, value: Label) -> tuple[int, float, str]:
    """Where a value stands among others of its label: as above, then numbers by size, then words by letters."""
    known = [word for pair in _VALUES.get(label, {}).items() for word in pair]
    if value in known:
        return known.index(str(value)), 0.0, ""
    try:
        return len(known), float(value), ""
    except ValueError:
        return len(known) + 1, 0.0, str(value)


def paper_rows(labels: Mapping[str, Label]) -> tuple[str, ...]:
    """What the paper's tables may call a row; each table has at most one of these names."""
    row = title("row", labels["row"])
    elsewhere = (ESTIMATORS.get(row), MEASURES.get(str(labels.get("measure"))))
    return (row, *(name for name in elsewhere if name is not None))


def is_reference(labels: Mapping[str, Label]) -> bool:
    """Whether it is Fed-ADE as the paper sets it, with which the others are compared."""
    as_published = all(labels.get(label, bound) == bound for label, bound in PAPER_BOUNDS.items())
    return as_published and title("row", labels["row"]) in _REFERENCES
