"""Who has a part in a timestep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds
from fedade.core.threads import to_device


@dataclass(frozen=True)
class Rounds:
    """How clients and server meet within a timestep."""

    per_timestep: int
    participation: float
    """Share of the clients that take part in a round."""

    def participants(self, seeds: Seeds, num_clients: int, timestep: int | None) -> NDArray[np.int64]:
        """The clients of every round in ascending order, `[R, P]`; without a timestep, the same at all of them."""
        count = max(1, round(self.participation * num_clients))
        when = {} if timestep is None else {"timestep": timestep}
        return np.stack([
            np.sort(seeds.generator("participants", round=number, **when).choice(num_clients, count, replace=False))
            for number in range(self.per_timestep)
        ])  # fmt: skip


class Awake(NamedTuple):
    """The clients that do anything in a timestep, of every federation; all others sleep."""

    clients: NDArray[np.int64]
    """In ascending order, `[F, A]`."""
    participants: NDArray[np.int64]
    """Places among them of those who take part in each round, `[F, R, P]`."""
    scored: NDArray[np.int64] | None
    """Places among them of those who are scored, `[F, S]`; None for all."""

    @property
    def scored_clients(self) -> NDArray[np.int64]:
        """The clients that have rows in the trace, `[F, S]`."""
        return self.clients if self.scored is None else np.take_along_axis(self.clients, self.scored, 1)

    def panel(self, device: torch.device) -> Tensor | None:
        """`scored`, on a device."""
        return None if self.scored is None else to_device(self.scored, device)

    def participations(self) -> NDArray[np.int64]:
        """In how many rounds each scored client takes part, `[F, S]`."""
        count = self.clients.shape[1]
        rounds = np.stack([np.bincount(chosen.ravel(), minlength=count) for chosen in self.participants])
        return rounds if self.scored is None else np.take_along_axis(rounds, self.scored, 1)


def scored_panel(seeds: Seeds, num_clients: int, scored: int | None) -> NDArray[np.int64]:
    """Who is scored, in ascending order: all, or as many as are asked for."""
    if scored is None or scored >= num_clients:
        return np.arange(num_clients)
    return np.sort(seeds.generator("scored").choice(num_clients, scored, replace=False))


def _among(some: NDArray[np.int64], all_of_them: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of some that are among all; both ascend. It takes no look at all of a million clients."""
    places = np.minimum(np.searchsorted(all_of_them, some), len(all_of_them) - 1)
    known: NDArray[np.int64] = some[all_of_them[places] == some]
    return known


def awake(
    present: NDArray[np.int64],
    participants: NDArray[np.int64],
    num_clients: int,
    scored: int | None,
    seeds: Sequence[Seeds],
) -> Awake:
    """All who are present, `[F, A]`; or, where only some are scored, those of them and the participants. `participants`
    are places among the present, `[F, R, P]`. Who is scored is drawn once, from all."""
    panel = scored_panel(seeds[0], num_clients, scored)
    if len(panel) == num_clients:
        return Awake(present, participants, None)
    if len(seeds) > 1:
        raise ValueError("federations side by side are awake in full: score all of their clients")
    panel, taking_part = _among(panel, present[0]), present[0][participants]
    if not len(panel):
        raise FedadeError("protocol.scored_clients: none of them has joined yet; score more clients, or all")
    clients = np.union1d(panel, taking_part)
    return Awake(clients[None], np.searchsorted(clients, taking_part), np.searchsorted(clients, panel)[None])
