"""Every sample under a corruption of its own, at full severity (mixed domains, as in Marsden et al., WACV 2024)."""

import numpy as np
from numpy.typing import NDArray

from fedade.data.corruptions import MAX_SEVERITY
from fedade.scenarios.streams import ShiftStreams


class MixedStreams(ShiftStreams):
    """All corruptions alike, drawn independently for each sample; classes drift as their kind says."""

    def conditions(
        self, clients: NDArray[np.int64], timestep: int, purpose: str = "stream"
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        names = np.stack([
            self.seeds.generator(f"{purpose} corruptions", client=client, timestep=timestep).integers(
                len(self.corruptions), size=self.settings.samples
            )
            for client in clients.tolist()
        ])  # fmt: skip
        return names, np.full(names.shape, MAX_SEVERITY * self.settings.shifts_inputs, dtype=np.int64)
