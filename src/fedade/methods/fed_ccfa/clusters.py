"""Clients that agree on a class: rows and prototypes averaged within clusters, and features aligned with these.

Axes: C clients, d entries or features, n samples, K classes.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.func import vmap

from fedade.core.split import Parameters
from fedade.maths.losses import weighted_cross_entropy

_FEWEST = 3
"""Labelled samples of a class that a client needs to have a say in it, and clients that MADD needs."""

_ENTRIES_AT_ONCE = 10_000_000
"""Numbers in the comparison of all clients with all by all, over classes; bounds memory."""

_NO_CHANCE = -1e4
"""Logit of a class without an anchor; finite, so that gradients are when no class has one."""


class ClassKnowledge(NamedTuple):
    """A classifier and, for the classes that are known, the mean feature of their samples."""

    classifier: dict[str, Tensor]
    anchors: Tensor
    known: Tensor


def within_clusters(
    classifier: Parameters, compared: Parameters, prototypes: Tensor, counts: Tensor, radius: float
) -> ClassKnowledge:
    """For every client, the means over its clusters; everything is stacked over clients. Clusters are formed for each
    class on its own, by the rows of `compared`, among clients with enough samples of it. A client that has too few, or
    too few others to be compared with, keeps what it has."""
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


def mean_absolute_difference_of_distances(
    vectors: Float[Tensor, "C d"], heard: Bool[Tensor, " C"] | None = None
) -> Float[Tensor, "C C"]:
    """MADD(i, j): mean over third parties z of |cos(v_i, v_z) - cos(v_j, v_z)| (Sarkar and Ghosh, 2020).

    Two vectors are near if they see all others under the same angles, which survives high dimensions. Only those who
    are `heard` (by default all) are third parties, and only between them is the distance finite; with fewer than three
    it is infinite between all.
    """
    if heard is None:
        heard = torch.ones(len(vectors), dtype=torch.bool, device=vectors.device)
    directions = unit_vectors(vectors)
    cosines = directions @ directions.mT
    differences = (cosines[:, None] - cosines[None]).abs()
    oneself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    third_party = ~(oneself[:, None] | oneself[None]) & heard
    distances = (differences * third_party).sum(-1) / (heard.sum() - 2).clamp_min(1)
    comparable = heard[:, None] & heard[None] & (heard.sum() > 2)
    return torch.where(comparable, distances, torch.inf)


def unit_vectors(vectors: Float[Tensor, "*C d"]) -> Float[Tensor, "*C d"]:
    """v / ‖v‖. A zero vector is divided by 1: dividing by a small number would blow its gradient up."""
    lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(lengths > 0, lengths, 1)


def same_cluster(distances: Float[Tensor, "C C"], radius: float) -> Bool[Tensor, "C C"]:
    """Whether two are connected by steps of at most `radius`: DBSCAN (Ester et al., 1996) with min_samples = 1.
    Everyone is in a cluster with itself, whatever its distances."""
    reached = (distances <= radius) | torch.eye(len(distances), dtype=torch.bool, device=distances.device)
    for _ in range(len(distances).bit_length()):
        reached = (reached.float() @ reached.float()) > 0
    return reached


def cluster_means(together: Bool[Tensor, "C C"], values: Float[Tensor, "C d"]) -> Float[Tensor, "C d"]:
    """For each the mean over its own cluster, all members alike."""
    shares = together.to(values.dtype) / together.sum(-1, keepdim=True)
    return shares @ values


def alignment_loss(
    features: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    trust: Float[Tensor, " n"],
    anchors: Float[Tensor, "K d"],
    known: Bool[Tensor, " K"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy of cos(feature, anchor) / temperature over the known anchors (FedCCFA, Chen et al., 2024)."""
    cosines = unit_vectors(features) @ unit_vectors(anchors).mT
    logits = torch.where(known, cosines / temperature, _NO_CHANCE)
    return weighted_cross_entropy(logits, labels, trust * known.to(trust.dtype)[labels])
