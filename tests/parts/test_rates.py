import torch

from fedade.parts.rates import MOST_RATES, replayed_rates

LIKE = torch.zeros(())


def test_few_measured_rates_are_kept_as_they_are():
    assert replayed_rates("shuffled", [0.3, 0.1, 0.2], LIKE).tolist() == torch.tensor([0.3, 0.1, 0.2]).tolist()


def test_many_measured_rates_are_thinned_evenly_by_size():
    measured = torch.rand(7 * MOST_RATES + 3, generator=torch.Generator().manual_seed(0)).square()
    kept = replayed_rates("shuffled", measured.tolist(), LIKE)
    assert len(kept) == MOST_RATES
    assert kept.min() == measured.min()
    assert kept.max() == measured.max()
    shares = torch.tensor([0.1, 0.5, 0.9])
    torch.testing.assert_close(kept.quantile(shares), measured.quantile(shares), atol=2e-3, rtol=0)
    torch.testing.assert_close(kept.mean(), measured.mean(), atol=2e-3, rtol=0)


def test_the_mean_is_one_rate():
    torch.testing.assert_close(replayed_rates("mean", [0.1, 0.3], LIKE), torch.tensor([0.2]))
