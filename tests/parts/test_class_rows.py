"""Class-wise statistics against what they should be by hand."""

import pytest
import torch

from fedade.parts.running_norms import BalancedRows, ClassRows, RowPace, followed, mixture


def fresh(classes: int, channels: int = 3) -> ClassRows:
    return ClassRows(torch.zeros(classes, channels), torch.ones(classes, channels))


def images(labels: torch.Tensor, seed: int = 1) -> torch.Tensor:
    noise = torch.randn(len(labels), 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return noise + labels.reshape(-1, 1, 1, 1)


def test_a_row_is_a_mixture_of_what_it_was_and_its_samples():
    labels = torch.tensor([0, 0, 1])
    batch, rate = images(labels), 0.1
    found = followed(fresh(3), batch, labels, RowPace(rate, 0.0))
    for label, count in ((0, 2), (1, 1)):
        share, own = rate * count, batch[labels == label]
        mean = share * own.mean((0, 2, 3))
        square = (1 - share) * 1.0 + share * own.square().mean((0, 2, 3))
        torch.testing.assert_close(found.means[label], mean)
        torch.testing.assert_close(found.variances[label], square - mean.square())
    assert torch.equal(found.means[2], torch.zeros(3))
    assert torch.equal(found.variances[2], torch.ones(3))


def test_samples_of_a_class_weigh_one_at_most_and_a_class_counts_once():
    labels = torch.arange(3).repeat(20)
    batch = images(labels)
    found = mixture(followed(fresh(3), batch, labels, RowPace(0.5, 0.0)))
    by_class = torch.stack([batch[labels == label].mean((0, 2, 3)) for label in range(3)])
    within = torch.stack([batch[labels == label].var((0, 2, 3), correction=0) for label in range(3)]).mean(0)
    torch.testing.assert_close(found.mean, by_class.mean(0))
    torch.testing.assert_close(found.variance, within + by_class.var(0))
    more = torch.cat([batch, batch[labels == 1]]), torch.cat([labels, labels[labels == 1]])
    again = mixture(followed(fresh(3), *more, RowPace(0.5, 0.0)))
    torch.testing.assert_close(again.mean, found.mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(again.variance, found.variance, atol=1e-5, rtol=0)


def test_a_shared_change_moves_classes_that_were_not_seen():
    labels = torch.zeros(8, dtype=torch.int64) + 1
    found = followed(fresh(3), images(labels), labels, RowPace(0.1, 0.2))
    assert (found.means[0] > 0).all()
    assert (found.means[1] > found.means[0]).all()


def test_a_stream_of_nine_to_one_ends_between_the_classes():
    labels, rows = (torch.arange(50) % 10 == 0).long(), fresh(2)
    for seed in range(60):
        rows = followed(rows, images(labels, seed), labels, RowPace(0.05, 0.0))
    torch.testing.assert_close(mixture(rows).mean, torch.full((3,), 0.5), atol=0.05, rtol=0)


@pytest.mark.parametrize(("classes", "rate", "shared"), [(10, 0.01, 0.0), (100, 0.05, 0.1)])
def test_constants_are_the_published_ones(classes, rate, shared):
    assert BalancedRows().pace(classes) == RowPace(rate, shared)
    assert BalancedRows(row_rate=0.3, row_sharing=0.4).pace(classes) == RowPace(0.3, 0.4)
