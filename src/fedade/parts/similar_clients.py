"""Each client's own average over all, in which clients that are alike count more."""

import torch
from torch import Tensor

from fedade.core.tree import Tree, tree_map


def distances(vectors: Tensor) -> Tensor:
    apart: Tensor = torch.linalg.vector_norm(vectors.unsqueeze(1) - vectors, dim=-1)
    return apart


def median_distance(apart: Tensor) -> Tensor:
    """The median over pairs of different clients; of one client 0."""
    clients = len(apart)
    place = clients + (clients * clients - clients) // 2
    return apart.flatten().sort().values[min(place, clients * clients - 1)]


def similarity_weights(apart: Tensor, temperature: Tensor | float) -> Tensor:
    """Rows that sum to 1, `[P, P]`: exp(-distance / temperature)."""
    return (-apart / temperature).softmax(-1)


def mixed(weights: Tensor, values: Tree) -> Tree:
    """Σ_j W_ij θ_j of every tensor `[P, ...]`, for each client i."""
    return tree_map(lambda value: (weights @ value.flatten(1)).reshape(value.shape), values)
