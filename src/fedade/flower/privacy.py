"""Client-level differential privacy: clipping, and Flower's noise and account, on the shared layers alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from flwr.serverapp import GaussianPrivacyEvent, NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod
from flwr.supercore.differential_privacy import add_gaussian_noise_inplace, compute_stdv

from fedade.core import storage
from fedade.core.errors import FedadeError
from fedade.core.tree import Tree, leaves, tree_map
from fedade.flower.bounds import scaled_back
from fedade.flower.settings import PrivacySettings
from fedade.flower.wire import Named


def clipped(uplink: Named, shared: Named, clipping_norm: float) -> Named:
    """An update whose distance from the shared layers is at most the norm."""
    refuse_other_layers(uplink, shared)
    return scaled_back(uplink, shared, clipping_norm)


def refuse_other_layers(uplink: Named, shared: Named) -> None:
    """Only what is a change of the shared layers can be clipped."""
    if uplink.keys() != shared.keys():
        raise FedadeError("flower.privacy: this method sends other things than the shared layers; choose another")


@dataclass
class PrivacyAccount:
    """What the releases of a run have spent, on disk before each release becomes known."""

    settings: PrivacySettings
    path: Path
    accountant: Any

    @classmethod
    def open(cls, settings: PrivacySettings, path: Path, population: int) -> "PrivacyAccount":
        """The account of a run, continued where it was begun."""
        accountant = RdpAccountant(
            PrivacyConfig(
                target_delta=settings.delta,
                population_size=population,
                neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
                # The seed, and so who takes part, is known to all: being drawn hides nobody.
                sampling_method=SamplingMethod.NO_AMPLIFICATION,
                max_epsilon=settings.max_epsilon,
            )
        )
        if path.exists():
            accountant.load_state_dict(storage.read_json(path)["account"])
        return cls(settings, path, accountant)

    def release(self, broadcast: Tree, participants: int) -> Tree:
        """The mean of the participants' clipped updates with noise, which may be told to all."""
        population = self.accountant.config.population_size
        event = GaussianPrivacyEvent(self.settings.noise_multiplier, participants, population)
        if self.settings.max_epsilon is not None and self.accountant.would_exceed(event):
            raise FedadeError(
                f"flower.privacy.max_epsilon: the next round would spend more than {self.settings.max_epsilon}; "
                f"so far ε = {self.spent()['epsilon']:.3f}"
            )
        self.accountant.compose(event)
        storage.write_json(self.path, {**self.spent(), "account": self.accountant.state_dict()})
        deviation = compute_stdv(self.settings.noise_multiplier, self.settings.clipping_norm, participants)
        arrays = [leaf.numpy().copy() for leaf in leaves(broadcast)]
        # Fresh noise, not addressed: whoever knows the run's seed must not be able to subtract it.
        add_gaussian_noise_inplace(arrays, deviation)
        noisy = iter(arrays)
        return tree_map(lambda _: torch.from_numpy(next(noisy)), broadcast)

    def spent(self) -> dict[str, Any]:
        found = self.accountant.get_privacy_spent()
        return {
            "epsilon": found.epsilon,
            "delta": found.delta,
            "releases": found.num_releases,
            "noise_multiplier": self.settings.noise_multiplier,
            "clipping_norm": self.settings.clipping_norm,
            "covers": "shared layers; not the diagnostics that clients share",
        }
