import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import DBSCAN

from fedade.methods.fed_ccfa.clusters import cluster_means, mean_absolute_difference_of_distances, same_cluster

from ...maths.samples import QUICK, generator, seeds


@QUICK
@given(seed=seeds, size=st.integers(3, 8))
def test_the_distance_is_the_published_mean_over_third_parties(seed, size):
    vectors = torch.randn(size, 4, generator=generator(seed))
    cosines = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
    found = mean_absolute_difference_of_distances(vectors)
    for i in range(size):
        for j in range(size):
            others = [z for z in range(size) if z not in (i, j)]
            expected = sum(abs(cosines[i, z] - cosines[j, z]) for z in others) / len(others) if i != j else 0
            assert found[i, j] == pytest.approx(float(expected), abs=1e-5)


@QUICK
@given(seed=seeds, size=st.integers(1, 12), radius=st.floats(0, 0.5))
def test_clusters_are_those_of_dbscan_with_one_sample(seed, size, radius):
    points = torch.rand(size, generator=generator(seed), dtype=torch.float64)
    distances = (points[:, None] - points[None]).abs()
    expected = DBSCAN(eps=radius or 1e-12, min_samples=1, metric="precomputed").fit_predict(distances.numpy())
    together = same_cluster(distances.float(), radius or 1e-12)
    assert together.tolist() == (expected[:, None] == expected[None]).tolist()


def test_a_chain_is_one_cluster():
    steps = torch.arange(33.0)
    distances = (steps[:, None] - steps[None]).abs()
    assert same_cluster(distances, 1.0).all()


def test_means_stay_within_clusters():
    together = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    means = cluster_means(together, torch.tensor([[1.0], [3.0], [10.0]]))
    assert means.tolist() == [[2.0], [2.0], [10.0]]


def test_zero_vectors_are_near_each_other_and_two_clients_cannot_be_compared():
    assert (mean_absolute_difference_of_distances(torch.zeros(4, 3)) == 0).all()
    assert mean_absolute_difference_of_distances(torch.ones(2, 3)).isinf().all()
    assert torch.equal(same_cluster(torch.full((2, 2), torch.inf), 1.0), torch.eye(2, dtype=torch.bool))


@QUICK
@given(seed=seeds, size=st.integers(4, 9))
def test_who_is_not_heard_changes_nothing_for_the_others(seed, size):
    vectors = torch.randn(size, 4, generator=generator(seed))
    heard = torch.arange(size) != size // 2
    among = mean_absolute_difference_of_distances(vectors, heard)
    alone = mean_absolute_difference_of_distances(vectors[heard])
    torch.testing.assert_close(among[heard][:, heard], alone)
    assert among[size // 2].isinf().all()
