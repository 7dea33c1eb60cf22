"""The models behind methods' states, where a state shows one."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedade.core import tree
from fedade.core.deployment import Deployment
from fedade.core.tree import Tree


class ClientModels(NamedTuple):
    """What some clients compute with: deployed, under `shared`, under `own`."""

    deployment: Deployment
    shared: dict[str, Tensor]
    own: dict[str, Tensor]
    """`[c, ...]`"""

    def model_with(self, own: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All tensors of a client, from its row of `own`."""
        return {**self.deployment.parameters, **self.shared, **own}

    @property
    def moves(self) -> bool:
        """Whether anything differs, or may differ, from what was deployed."""
        return bool(self.own or self.shared)

    @property
    def has_common_body(self) -> bool:
        """Whether all clients represent inputs alike."""
        return not any(name.startswith("body.") for name in self.own)

    def trainable(self, clients: int) -> dict[str, Tensor]:
        """What gradient steps may move, of every client, `[c, ...]`."""
        common = {**self.deployment.parameters, **self.shared}
        return {
            name: self.own[name] if name in self.own else common[name].expand(clients, *common[name].shape)
            for name in sorted(self.deployment.network.trainable())
        }

    def distances(self, clients: int) -> Tensor:
        """‖θ − θ_0‖ of every client, `[c]`."""
        start = self.deployment.parameters
        moved = [(value - start[name]).flatten(1) for name, value in self.trainable(clients).items()]
        lengths: Tensor = torch.linalg.vector_norm(torch.cat(moved, 1), dim=1)
        return lengths


def client_models(deployment: Deployment, clients: Tree, server: Tree) -> ClientModels | None:
    """The models of the clients whose states these are; None where a state holds several candidates.

    A tensor belongs to the model if its place in the state ends with a parameter's name and it has its shape. Teachers,
    ensembles and a velocity have those too, and nothing tells which of them is the model. Models are looked at with
    their running statistics, also those of methods whose passes use the batch's own.
    """
    shared, own = _parameters(deployment, server, 0), _parameters(deployment, clients, 1)
    return None if shared is None or own is None else ClientModels(deployment, shared, own)


def _parameters(deployment: Deployment, state: Tree, axes: int) -> dict[str, Tensor] | None:
    parameters: dict[str, Tensor] = {}
    for place, leaf in tree.to_named(state, "").items():
        for name, deployed in deployment.parameters.items():
            if place.endswith(f"['{name}']"):
                if name in parameters or leaf.shape[axes:] != deployed.shape:
                    return None
                parameters[name] = leaf
    return parameters
