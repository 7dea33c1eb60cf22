"""Images whose channels lie side by side: faster convolutions on a CPU, and the same answers."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

import fedade
from fedade.core.deployment import Deployment
from fedade.core.normalisation import batch_statistics
from fedade.kernels.mapping import lies_by_pixel
from fedade.methods.fed_ade_plus.own_statistics import sample_moments
from fedade.models.batch_norm import BatchNorm

from .networks import labels_for, made

needs_convolutions_by_pixel = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="PyTorch was built without oneDNN"
)


class Viewing(nn.Module):
    """Takes for granted how the images lie, as many networks do before their head."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 36, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.convolution(images)).relu().view(len(images), -1))


def by_pixel(images: Tensor) -> Tensor:
    return images.contiguous(memory_format=torch.channels_last)


def deployed(model: nn.Module) -> Deployment:
    return fedade.deploy(model, (torch.rand(60, 3, 8, 8), torch.arange(60) % 3), progress=False)


@needs_convolutions_by_pixel
def test_a_network_of_convolutions_sees_images_by_pixel_and_answers_as_before():
    sample = made("resnet-20")
    deployment = fedade.deploy(sample.model, (sample.inputs, labels_for(sample)), progress=False)
    body = deployment.network.body
    assert body.by_pixel
    made_by_pixel = fedade.Adapter(deployment)(sample.inputs[:50])
    body.by_pixel = False
    torch.testing.assert_close(fedade.Adapter(deployment)(sample.inputs[:50]), made_by_pixel, atol=1e-4, rtol=0)


def test_a_network_that_counts_on_how_images_lie_gets_them_as_before():
    model = Viewing().eval()
    deployment = deployed(model)
    assert not deployment.network.body.by_pixel
    images = torch.rand(40, 3, 8, 8)
    torch.testing.assert_close(deployment.network.logits(deployment.parameters, images), model(images).detach())


@pytest.mark.parametrize("name", ["resnet-20", "viewing"])
def test_how_the_callers_images_lie_makes_no_difference(name):
    if name == "viewing":
        deployment, images = deployed(Viewing().eval()), torch.rand(40, 3, 8, 8)
    else:
        sample = made(name)
        deployment = fedade.deploy(sample.model, (sample.inputs, labels_for(sample)), progress=False)
        images = sample.inputs[:40]
    answer = fedade.Adapter(deployment)(images)
    for other in (by_pixel(images), images.flip(-1).flip(-1), images.transpose(2, 3).contiguous().transpose(2, 3)):
        assert torch.equal(fedade.Adapter(deployment)(other), answer)


@torch.no_grad()
def test_normalisation_and_moments_of_images_by_pixel_are_those_of_the_same_images():
    images, norm = 3 * torch.randn(7, 5, 6, 4) + 1, BatchNorm(5).eval()
    mean, variance = batch_statistics(images)
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    assert lies_by_pixel(by_pixel(images))
    assert not lies_by_pixel(images)
    torch.testing.assert_close(norm(by_pixel(images)), norm(images))
    assert lies_by_pixel(norm(by_pixel(images)))
    torch.testing.assert_close(sample_moments(by_pixel(images)), sample_moments(images))


def test_mapped_images_are_not_asked_how_they_lie():
    assert vmap(lambda images: images + lies_by_pixel(images))(torch.zeros(2, 3, 4, 5, 5)).sum() == 0
