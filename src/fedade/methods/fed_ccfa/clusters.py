"""Clients that agree on a class: their classifier rows and class prototypes, averaged within clusters."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.split import Parameters
from fedade.methods.fed_ccfa.clustering import cluster_means, mean_absolute_difference_of_distances, same_cluster
from fedade.parts.last_layers import class_rows, last_layer

_WEIGHT_AND_BIAS = 2
_FEWEST = 3
"""Labelled samples of a class that a client needs to have a say in it, and clients that MADD needs."""

_ENTRIES_AT_ONCE = 10_000_000
"""Numbers in the comparison of all clients with all by all, over classes; bounds memory."""


class ClassKnowledge(NamedTuple):
    """A classifier and, for the classes that are known, the mean feature of their samples."""

    classifier: dict[str, Tensor]
    anchors: Tensor
    known: Tensor


def linear_classifier(deployment: Deployment, method: str) -> dict[str, Tensor]:
    """The last layer, where it has one row per class."""
    classifier = last_layer(deployment)
    if class_rows(deployment) is None or len(classifier) != _WEIGHT_AND_BIAS:
        raise FedadeError(
            f"{method}: the head of {deployment.network.name!r} holds {', '.join(sorted(classifier))}; rows of "
            "classifiers are compared, so use a model whose last layer is linear, with a bias"
        )
    return classifier


def within_clusters(
    classifier: Parameters, compared: Parameters, prototypes: Tensor, counts: Tensor, radius: float
) -> ClassKnowledge:
    """For every client, the means over its clusters; everything is stacked over clients.

    Clusters are formed for each class on its own, by the rows of `compared`, among clients with enough samples of it.
    A client that has too few, or too few others to be compared with, keeps what it has.
    """
    rows, profiles, known = _rows(classifier), _rows(compared), counts >= _FEWEST

    def of_class(profile: Tensor, heard: Tensor, row: Tensor, prototype: Tensor) -> tuple[Tensor, Tensor]:
        together = same_cluster(mean_absolute_difference_of_distances(profile, heard), radius)
        return cluster_means(together, row), cluster_means(together, prototype)

    at_once = max(1, _ENTRIES_AT_ONCE // len(counts) ** 3)
    rows, anchors = vmap(of_class, in_dims=1, out_dims=1, chunk_size=at_once)(profiles, known, rows, prototypes)
    merged = {name: (rows[..., :-1] if name.endswith("weight") else rows[..., -1]).contiguous() for name in classifier}
    return ClassKnowledge(merged, anchors, known)


def _rows(classifier: Parameters) -> Tensor:
    """`[C, K, d + 1]`: the weights of each class, then its bias."""
    bias, weight = (value for _, value in sorted(classifier.items()))
    return torch.cat([weight, bias.unsqueeze(-1)], -1)
