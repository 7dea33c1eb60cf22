"""Networks of timm, tried with a stand-in of its shape, and with timm itself where it is installed."""

import importlib.util
import sys
import types

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedade.core.errors import FedadeError
from fedade.models import build
from fedade.models.foreign import brought_module
from fedade.models.image import Pixels
from fedade.models.splitting import bring

PIXELS = Pixels([0.5] * 3, [0.25] * 3)


class OneSize(nn.Module):
    """As timm's vision transformers: takes one size of image, and names its classifier in `pretrained_cfg`."""

    def __init__(self, num_classes: int = 1000, in_chans: int = 3) -> None:
        super().__init__()
        self.body = nn.Conv2d(in_chans, 5, 4, 4)
        self.head = nn.Linear(5, num_classes)
        self.pretrained_cfg = {
            "input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.2,) * 3, "classifier": "head",
            "fixed_input_size": True,
        }  # fmt: skip

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int) -> None:
        assert num_classes == 0
        self.head = nn.Identity()

    def forward(self, images):
        assert images.shape[-2:] == (16, 16), "an image of another size"
        return self.head(self.body(images).mean((2, 3)))


@pytest.fixture
def timm(monkeypatch):
    """A stand-in: one network, whose pre-trained weights are ones."""

    def create_model(name, pretrained=False, **options):
        if name != "one-size":
            raise RuntimeError(f"Unknown model ({name})")
        model = OneSize(**options)
        if pretrained:
            for parameter in model.parameters():
                nn.init.ones_(parameter)
        return model

    module = types.ModuleType("timm")
    module.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def test_images_of_any_size_are_trained_on(timm):
    network = build("timm:one-size", (3, 32, 32), 10, PIXELS, 0)
    parameters = network.initial_parameters()
    features = network.represent(parameters, torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8))
    assert network.classify(parameters, features).shape == (2, 10)


def test_pretrained_weights_are_brought_with_size_and_normalisation(timm):
    model = brought_module("timm:one-size")
    images = torch.rand(4, 3, 16, 16)
    expected = ((images - 0.5) / 0.2).view(4, 3, 4, 4, 4, 4).sum((1, 3, 5)).mean((1, 2)) + 1
    torch.testing.assert_close(model(images)[:, 0], 5 * expected + 1, rtol=1e-4, atol=1e-3)
    assert model(torch.rand(4, 3, 40, 24)).shape == (4, 1000)
    assert bring(model, images, None).head == "2.head"


def test_weights_of_a_file_say_how_many_classes_there_are(timm, tmp_path):
    trained = OneSize(7)
    save_file(trained.state_dict(), tmp_path / "mine.safetensors")
    model = brought_module(f"timm:one-size?weights={tmp_path / 'mine.safetensors'}")
    assert torch.equal(model[2].head.weight, trained.head.weight)


def test_what_is_wrong_is_one_line(timm, tmp_path):
    def told(name: str) -> str:
        with pytest.raises(FedadeError) as error:
            brought_module(name)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "Unknown model (two-sizes)" in told("timm:two-sizes")
    assert "mine.safetensors is missing" in told(f"timm:one-size?weights={tmp_path / 'mine.safetensors'}")
    assert "unknown option 'size=3'" in told("timm:one-size?size=3")
    save_file({"nose.weight": torch.zeros(1)}, tmp_path / "mine.safetensors")
    assert "has no head.weight" in told(f"timm:one-size?weights={tmp_path / 'mine.safetensors'}")
    save_file({"head.weight": torch.zeros(3, 4)}, tmp_path / "mine.safetensors")
    assert "does not fit" in told(f"timm:one-size?weights={tmp_path / 'mine.safetensors'}")

    def offline(name, **options):
        raise FileNotFoundError("no connection")

    timm.create_model = offline
    assert "its weights are not on this disk and cannot be fetched (no connection); name a file" in told(
        "timm:one-size"
    )


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    for call in (lambda: build("timm:resnet18", (3, 32, 32), 10, PIXELS, 0), lambda: brought_module("timm:resnet18")):
        with pytest.raises(FedadeError, match=r"fedade\[timm\]"):
            call()


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed here")
@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_timm_itself(name, tmp_path):
    import timm

    network = build(f"timm:{name}", (3, 32, 32), 10, PIXELS, 0)
    parameters = network.initial_parameters()
    features = network.represent(parameters, torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8))
    assert network.classify(parameters, features).shape == (2, 10)
    assert not any(isinstance(child, nn.BatchNorm2d) for child in network.body.modules())
    save_file(timm.create_model(name, num_classes=5).state_dict(), tmp_path / "mine.safetensors")
    model = brought_module(f"timm:{name}?weights={tmp_path / 'mine.safetensors'}")
    brought = bring(model, torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8), None, unit_pixels=True)
    assert brought.network.classify(brought.parameters, features).shape == (2, 5)
