import pytest
import torch
from hypothesis import given
from torch.func import vmap

from fedade.maths.priors.simplex import mix_with_uniform, normalise, project_to_simplex

from ..samples import QUICK, generator, is_distribution, seeds, softmax_batch, vectors


@QUICK
@given(vector=vectors(-1e6, 1e6))
def test_every_projection_is_a_distribution(vector):
    assert is_distribution(project_to_simplex(vector))


@QUICK
@given(seed=seeds)
def test_a_distribution_is_its_own_projection(seed):
    inside = softmax_batch(seed, 4, 10)
    assert torch.allclose(project_to_simplex(inside), inside, atol=1e-6)


@QUICK
@given(seed=seeds)
def test_no_other_distribution_is_nearer(seed):
    vector = torch.randn(8, generator=generator(seed))
    distance = (project_to_simplex(vector) - vector).norm()
    others = softmax_batch(seed + 1, 200, 8, scale=4.0)
    assert ((others - vector).norm(dim=-1) >= distance - 1e-6).all()


def test_a_common_shift_costs_no_precision():
    vector = torch.tensor([0.0, 0.25, 0.5, -2.0])
    assert torch.equal(project_to_simplex(vector + 2.0**20), project_to_simplex(vector))


def test_the_zero_vector_projects_to_the_uniform():
    assert project_to_simplex(torch.zeros(4)).tolist() == [0.25] * 4


def test_vmap_equals_batch():
    batch = torch.randn(5, 7, generator=generator(1))
    assert torch.equal(vmap(project_to_simplex)(batch), project_to_simplex(batch))


def test_nothing_to_normalise_gives_the_fallback():
    fallback = torch.tensor([0.5, 0.5])
    assert normalise(torch.tensor([[0.0, 0.0], [1.0, 3.0]]), fallback).tolist() == [[0.5, 0.5], [0.25, 0.75]]


def test_mixing_keeps_the_sum_and_lifts_every_class():
    mixed = mix_with_uniform(torch.tensor([1.0, 0.0]), 0.5)
    assert mixed.tolist() == pytest.approx([0.75, 0.25])
