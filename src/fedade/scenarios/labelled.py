"""Which labelled examples each client holds: its own draw of the held-out side, as many of each class as can be."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds


class ClientRows(NamedTuple):
    """Rows of the held-out examples, `[C, n]`, and whether no two clients share any."""

    rows: NDArray[np.int64]
    disjoint: bool


def client_rows(labels: NDArray[np.int64], num_classes: int, num_clients: int, size: int, seeds: Seeds) -> ClientRows:
    """Every client's own examples (x_c⁰, y_c⁰): dealt out where there are enough for all, else drawn independently."""
    by_class = [np.flatnonzero(labels == label) for label in range(num_classes)]
    available = np.array([len(rows) for rows in by_class])
    refuse_too_many(size, len(labels))
    if not available.all():
        raise FedadeError(
            f"class {int(np.argmin(available))} has no held-out example, and every client needs one of each class; "
            "bring more data, or set scenario.reference to common"
        )
    if size < num_classes:
        raise FedadeError(
            f"scenario.reference_size: {size} examples cannot hold one of each of {num_classes} classes; set it to "
            f"{num_classes} or more, or scenario.reference to common"
        )
    wanted = np.stack([_share_of_classes(client, size, available) for client in range(num_clients)])
    disjoint = bool((wanted.sum(0) <= available).all())
    rows = []
    for label, own in enumerate(by_class):
        if disjoint:
            dealt = seeds.generator("reference", label=label).permutation(own)
            rows.append(np.split(dealt[: wanted[:, label].sum()], np.cumsum(wanted[:, label])[:-1]))
        else:
            rows.append([
                seeds.generator("reference", label=label, client=client).permutation(own)[:count]
                for client, count in enumerate(wanted[:, label])
            ])  # fmt: skip
    return ClientRows(np.stack([np.sort(np.concatenate(parts)) for parts in zip(*rows, strict=True)]), disjoint)


def refuse_too_many(size: int, held_out: int) -> None:
    """Refuse to draw more labelled examples than there are."""
    if size > held_out:
        raise FedadeError(
            f"scenario.reference_size: {size} examples are asked for and {held_out} are held out; set it to "
            f"{held_out} or less, or bring more data"
        )


def _share_of_classes(client: int, size: int, available: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of each class: as many of all as there are, and one more of as many as it takes, other ones for other
    clients."""
    level = int(
        np.searchsorted([np.minimum(available, level).sum() for level in range(available.max() + 1)], size, "right")
    )
    counts = np.minimum(available, level - 1)
    roomy = np.flatnonzero(available > counts)
    counts[np.roll(roomy, -client)[: size - counts.sum()]] += 1
    return counts
