"""Rows of a trace that may still be on their way from the device."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.core.trace import Rows


class PendingRows(NamedTuple):
    """One timestep of the scored clients of all federations, `[F, S, ...]`."""

    timestep: int
    known: Mapping[str, NDArray[Any]]
    """Columns that the host knows, among them `client`."""
    computed: Mapping[str, Tensor]
    """Columns that the device computes."""
    whole: Tensor
    """Whether a client's inputs hold numbers only."""
    finite: Tensor
    """Whether a client's predictions do."""


def collect(pending: Sequence[PendingRows], federation: int = 0) -> Rows:
    """The columns of one federation over some timesteps; waits for the device."""
    _refuse_faults(pending, federation)
    known = {name: np.concatenate([step.known[name][federation] for step in pending]) for name in pending[0].known}
    times = np.concatenate([np.full(len(step.known["client"][federation]), step.timestep) for step in pending])
    computed = {
        name: np.asarray(torch.cat([step.computed[name][federation] for step in pending]).cpu().numpy())
        for name in pending[0].computed
    }
    return {"client": known.pop("client"), "timestep": times, **known, **computed}


def _refuse_faults(pending: Sequence[PendingRows], federation: int) -> None:
    """Name the first client whose data is broken, else the first whose model is: broken data spreads to models."""
    unlearned = "the model overflows; scale the stream's inputs as the held-out ones are"
    diverged = "the model diverged; lower its learning rate (for most methods its setting `rate`)"
    remedy = diverged if "learning_rate" in pending[0].computed else unlearned
    for flags, fault in {
        "whole": "the batch holds NaN or infinite values; clean the stream's data",
        "finite": f"its predictions are not finite, {remedy}",
    }.items():
        broken = ~torch.cat([getattr(step, flags)[federation] for step in pending]).cpu()
        if broken.any():
            rows = [(client, step.timestep) for step in pending for client in step.known["client"][federation].tolist()]
            client, timestep = rows[int(broken.nonzero()[0])]
            raise FedadeError(f"client {client}, timestep {timestep}: {fault}")
