"""Which clients think alike: distances and clusters of their vectors, at the server. Axes: C clients, d entries."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


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

    Everyone is in a cluster with itself, whatever its distances.
    """
    reached = (distances <= radius) | torch.eye(len(distances), dtype=torch.bool, device=distances.device)
    for _ in range(len(distances).bit_length()):
        reached = (reached.float() @ reached.float()) > 0
    return reached


def cluster_means(together: Bool[Tensor, "C C"], values: Float[Tensor, "C d"]) -> Float[Tensor, "C d"]:
    """For each the mean over its own cluster, all members alike."""
    shares = together.to(values.dtype) / together.sum(-1, keepdim=True)
    return shares @ values
