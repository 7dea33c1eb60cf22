"""How far inputs lie from held-out ones: far where they moved, near where only classes did."""

import pytest
import torch

from fedade.adapter.appearance import HeldOutAppearance, appearance

from ..maths.samples import generator

CLASSES = 3


def images(label: int, number: int, seed: int) -> torch.Tensor:
    """Brighter by class."""
    return 0.3 * label + torch.rand(number, 3, 8, 8, generator=generator(seed))


def rows(label: int, number: int, seed: int) -> torch.Tensor:
    return 2.0 * label + torch.randn(number, 6, generator=generator(seed))


@pytest.mark.parametrize("draw", [images, rows])
def test_inputs_that_moved_are_far_and_other_class_frequencies_are_not(draw):
    labels = torch.arange(CLASSES).repeat_interleave(200)
    seen = HeldOutAppearance.fit(torch.cat([draw(label, 200, label) for label in range(CLASSES)]), labels, CLASSES)
    for only in range(CLASSES):
        prior = torch.nn.functional.one_hot(torch.tensor(only), CLASSES).float()
        batch = draw(only, 50, 10 + only)
        near = seen.distance(seen.moments(batch), prior)
        moved = {
            "noise": batch + 3 * batch.std() * torch.randn(batch.shape, generator=generator(5)),
            "offset": batch + 5 * batch.std(),
            "nothing left": torch.zeros_like(batch),
        }
        assert near < 0.5
        for kind, inputs in moved.items():
            assert seen.distance(seen.moments(inputs), prior) > 2 * near, kind


def test_tokens_look_like_nothing_and_are_never_far():
    tokens, labels = torch.randint(0, 40, (30, 7)), torch.arange(30) % CLASSES
    assert appearance(tokens).shape == (30, 0)
    seen = HeldOutAppearance.fit(tokens, labels, CLASSES)
    assert seen.distance(seen.moments(tokens[:5]), torch.full((CLASSES,), 1 / CLASSES)) == 0
