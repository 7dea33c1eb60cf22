import pytest
import torch
from torch import nn
from torch.func import vmap

from fedade.core.errors import FedadeError
from fedade.core.normalisation import Mixed, RecordingStatistics
from fedade.core.split import Split
from fedade.models import MODELS, build, standardising
from fedade.models.batch_norm import BatchNorm
from fedade.models.image import Pixels

SHAPES = {"small-cnn": (1, 8, 8), "resnet-3block": (3, 32, 32), "resnet18": (3, 64, 64), "mlp": (6,)}


def pixels(channels: int) -> Pixels:
    return Pixels([0.5] * channels, [0.25] * channels)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_network_gives_logits_and_features_in_every_mode(name):
    shape = SHAPES.get(name, (3, 32, 32))
    network = build(name, shape, 7, standardising([100.0] * shape[0], [50.0] * shape[0], shape), 0)
    parameters = network.initial_parameters()
    inputs = torch.randint(0, 256, (3, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    recording = RecordingStatistics()
    with torch.no_grad():
        for normalisation in (Mixed(0.0), Mixed(0.5), recording):
            features = network.represent(parameters, inputs, normalisation)
            assert network.classify(parameters, features).shape == (3, 7)
    names = {f"{layer}.running_mean" for layer in recording.seen}
    assert names == {name for name in parameters if name.endswith("running_mean")}
    Split(("head.",)).check(parameters)


def test_the_papers_network_has_about_a_third_of_a_million_parameters():
    parameters = build("resnet-3block", (3, 32, 32), 10, pixels(3), 0).initial_parameters()
    assert 0.28e6 < sum(value.numel() for value in parameters.values()) < 0.34e6


def test_weights_depend_on_the_seed_alone():
    one, same, other = (build("small-cnn", (1, 8, 8), 10, pixels(1), seed).initial_parameters() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_bytes_and_floats_are_the_same_picture():
    layer = pixels(1)
    image = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    assert torch.equal(layer(image), layer(image.float()))
    assert layer(torch.full((1, 1, 2, 2), 127.5)).abs().max() == 0


class Users(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.middle = nn.Linear(4 * 36, 12)
        self.top = nn.Linear(12, num_classes)

    def forward(self, inputs):
        return self.top(self.middle(self.trunk(inputs)))


def test_any_module_can_be_named_and_its_last_linear_layer_is_the_head():
    network = build("import:tests.models.test_models:Users", (1, 8, 8), 5, pixels(1), 0)
    assert any(isinstance(child, BatchNorm) for child in network.body.modules())
    assert isinstance(network.head, nn.Linear)
    parameters = network.initial_parameters()
    inputs = torch.rand(6, 2, 1, 8, 8) * 255
    assert network.represent(parameters, inputs[0]).shape == (2, 12)
    mapped = vmap(lambda batch: network.logits(parameters, batch))(inputs)
    torch.testing.assert_close(mapped[3], network.logits(parameters, inputs[3]))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("vgg", "unknown model"),
        ("import:tests.models.test_models:Nothing", "cannot be imported"),
        ("import:json:loads", "fails .*mend the function"),
        ("import:json:JSONDecodeError", "cannot be called with"),
        ("import:builtins:abs", "returns a int; it must return an nn.Module"),
    ],
)
def test_a_wrong_name_is_told(name, told):
    with pytest.raises(FedadeError, match=told):
        build(name, (1, 8, 8), 5, pixels(1), 0)


def test_batch_norm_answers_the_same_alone_mapped_and_where_gradients_are_wanted():
    layer, inputs = BatchNorm(4).eval(), torch.randn(6, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    for name, value in (("running_mean", 0.5), ("running_var", 3.0), ("weight", -2.0), ("bias", 0.25)):
        getattr(layer, name).data.fill_(value)
    expected = nn.functional.batch_norm(inputs, layer.running_mean, layer.running_var, layer.weight, layer.bias)
    torch.testing.assert_close(layer(inputs), expected)
    with torch.no_grad():
        torch.testing.assert_close(layer(inputs), expected)
        torch.testing.assert_close(vmap(layer)(inputs.unsqueeze(0))[0], expected)
