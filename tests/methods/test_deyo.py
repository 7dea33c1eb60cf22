"""What DeYO alone promises."""

import pytest
import torch

from fedade.core.tokens import PADDING
from fedade.methods.deyo import Deyo, shuffled

from ..helpers import begin, equal, observe
from .adapting import after, batch


@pytest.fixture(scope="module")
def scenario(scenario_factory):
    return scenario_factory(kind="covariate")


def test_samples_that_lose_nothing_are_not_trusted(scenario):
    start = begin(Deyo(), scenario.deployment)
    strict, plan = after(Deyo(least_loss=1), scenario, 1)
    assert plan["reliable"] == 0
    assert equal(strict, start)
    seen = batch(scenario)
    grey = seen._replace(inputs=torch.full_like(seen.inputs, 128))
    assert equal(observe(Deyo(least_loss=0, reliable_entropy=2), scenario.deployment, start, (), grey)[0], start)


def test_trusted_samples_move_scales(scenario):
    method = Deyo(least_loss=-2, reliable_entropy=2)
    client, plan = after(method, scenario, 1)
    assert plan["reliable"] == 1
    assert not equal(client.own, begin(method, scenario.deployment).own)


@pytest.mark.parametrize("shape", [(5, 1, 8, 8), (5, 3, 32, 32), (3, 1, 3, 3)])
def test_shuffling_keeps_every_images_pixels(shape):
    images = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)
    mixed = shuffled(images, torch.tensor(7), 4)
    assert not torch.equal(mixed, images)
    assert torch.equal(mixed.flatten(1).sort().values, images.flatten(1).sort().values)
    moves = (mixed - images).flatten(1)
    assert not torch.equal(moves[0], moves[1])


def test_of_texts_all_tokens_but_the_first_and_the_padding_change_places():
    texts = torch.tensor([[5, 6, 7, 8, 9, PADDING, PADDING]]).expand(4, 7)
    mixed = shuffled(texts, torch.tensor(3), 4)
    assert (mixed[:, 0] == 5).all()
    assert (mixed[:, 5:] == PADDING).all()
    assert torch.equal(mixed.sort(-1).values, texts.sort(-1).values)
    assert not torch.equal(mixed, texts)
