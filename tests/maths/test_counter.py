import numpy as np
import torch
from torch.func import vmap

from fedade.maths.counter import normal, permutation, uniform, uniforms


def test_numbers_are_uniform_and_uncorrelated_across_keys_purposes_and_positions():
    keys = torch.arange(200)
    drawn = vmap(lambda key: torch.stack([uniform(key, (50,), 0), uniform(key, (50,), 1)]))(keys).numpy()
    assert drawn.min() >= 0
    assert drawn.max() < 1
    histogram = np.histogram(drawn, 10, (0, 1))[0] / drawn.size
    assert np.abs(histogram - 0.1).max() < 0.01
    first, second = drawn[:, 0].ravel(), drawn[:, 1].ravel()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 0.03
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.03


def test_the_same_key_gives_the_same_numbers_alone_and_mapped():
    keys = torch.tensor([3, 2**31 - 1])
    mapped = vmap(lambda key: uniform(key, (4, 5), 7))(keys)
    assert torch.equal(mapped[1], uniform(keys[1], (4, 5), 7))


def test_normal_numbers_have_unit_variance_and_permutations_are_orders():
    drawn = normal(torch.tensor(1), (20_000,))
    assert abs(drawn.mean()) < 0.03
    assert abs(drawn.var() - 1) < 0.05
    assert sorted(permutation(torch.tensor(5), 17).tolist()) == list(range(17))


def test_purposes_that_are_drawn_together_have_the_numbers_of_each_alone():
    key = torch.tensor(11)
    together = uniforms(key, (2, 3), range(1, 8, 3))
    assert torch.equal(together, torch.stack([uniform(key, (2, 3), purpose) for purpose in (1, 4, 7)]))
    assert uniforms(key, (2, 3), range(0)).shape == (0, 2, 3)
