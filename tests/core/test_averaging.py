import torch
from hypothesis import given
from hypothesis import strategies as st

from fedade.core.split import weighted_mean

from ..maths.samples import QUICK, generator, seeds


@QUICK
@given(seed=seeds, clients=st.integers(1, 12))
def test_the_order_of_clients_does_not_matter(seed, clients):
    source = generator(seed)
    values = torch.randn(clients, 3, 2, generator=source)
    counts = torch.randint(0, 50, (clients,), generator=source)
    order = torch.randperm(clients, generator=source)
    assert torch.allclose(weighted_mean(values, counts), weighted_mean(values[order], counts[order]), atol=1e-6)


@QUICK
@given(seed=seeds, weight=st.floats(0, 1e6, width=32))
def test_one_client_keeps_its_values_to_the_bit(seed, weight):
    values = torch.randn(1, 4, generator=generator(seed))
    assert torch.equal(weighted_mean(values, torch.tensor([weight])), values[0])


def test_counts_weigh():
    values = torch.tensor([[0.0, 8.0], [4.0, 0.0]])
    assert weighted_mean(values, torch.tensor([1, 3])).tolist() == [3.0, 2.0]
    assert weighted_mean(values[:, 0], torch.tensor([1.0, 3.0])) == 3.0


def test_no_weight_at_all_is_the_plain_mean():
    values = torch.tensor([[0.0, 8.0], [4.0, 0.0]])
    assert weighted_mean(values, torch.zeros(2)).tolist() == [2.0, 4.0]
