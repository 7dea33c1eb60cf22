"""Our own networks are traced as those of others are, and tracing leaves the rest of a process alone."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from threading import Event

import pytest
import torch
from torch import Tensor, nn

from fedade.kernels.native import library
from fedade.models import MODELS, OF_TABLES, build, standardising
from fedade.models.batch_norm import convert_batch_norms
from fedade.models.image import Pixels
from fedade.models.traced import fused_and_other_layers, traced

from .test_traced import Residual, conv


@pytest.mark.parametrize(("name", "convolutions"), [("small-cnn", 4), ("resnet-3block", 9), ("resnet18", 20)])
def test_networks_of_ours_are_one_chain(name, convolutions):
    body = build(name, (3, 8, 8), 5, Pixels([0.5] * 3, [0.25] * 3), 0).body
    assert [len(step.layers) for step in body.plan.steps if hasattr(step, "layers")] == [convolutions]
    fused, others = fused_and_other_layers(body)
    assert (len(fused), others) == (convolutions, [])


def test_a_network_is_built_without_compiling_anything(monkeypatch):
    """On a GPU nobody needs the convolutions of a CPU; where they are timed, plain PyTorch is to be left as it is."""
    monkeypatch.setattr(library, "_loaded", lambda: pytest.fail("the C++ convolutions are loaded"))
    assert build("resnet-3block", (3, 8, 8), 5, Pixels([0.5] * 3, [0.25] * 3), 0).body.plan is not None


class Waiting(nn.Module):
    """Does something in the middle of its pass."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.conv, self.act = conv(8, 8), act

    def forward(self, images: Tensor) -> Tensor:
        self.act()
        return self.conv(images)


def test_other_threads_go_on_while_a_network_is_traced():
    """`torch.fx` takes over the calls of all modules of a process meanwhile."""
    other, images = nn.Sequential(conv(8, 8), nn.ReLU()), torch.rand(2, 8, 7, 7)
    expected = other(images)
    with ThreadPoolExecutor(1) as threads:
        plan, why = traced(Waiting(lambda: threads.submit(other, images).result()).eval(), images)
        assert plan is not None, why
        torch.testing.assert_close(threads.submit(other, images).result(), expected)


def test_networks_are_traced_one_at_a_time():
    """A trace that begins within another and outlasts it would leave its hooks in all modules of the process."""
    calling, images, begun, ended = nn.Module.__call__, torch.rand(2, 8, 7, 7), Event(), Event()
    late = Waiting(lambda: (begun.set(), ended.wait(1))).eval()
    with ThreadPoolExecutor(1) as threads:
        early = Waiting(lambda: (threads.submit(traced, late, images), begun.wait(0.2))).eval()
        assert traced(early, images)[0] is not None
        ended.set()
    assert nn.Module.__call__ is calling


@pytest.mark.parametrize("name", sorted(MODELS))
def test_networks_of_ours_multiply_in_bf16(name):
    shape = (9,) if name in OF_TABLES else (3, 8, 8)
    network = build(name, shape, 5, standardising([0.5] * shape[0], [0.25] * shape[0], shape), 0)
    parameters, inputs = network.initial_parameters(), torch.rand(6, *shape)
    exact, rounded = (one.represent(parameters, inputs) for one in (network, network.computing_in("bf16")))
    assert rounded.dtype is torch.float32
    assert 0 < (rounded - exact).abs().max() < 0.05 * exact.abs().max()


def test_weights_that_only_place_channels_are_made_once_and_not_stored(monkeypatch):
    module = convert_batch_norms(Residual(8, 16, "A")).eval()
    images, before = torch.rand(2, 8, 6, 6), list(module.state_dict())
    plan, _ = traced(module, images)
    assert list(module.state_dict()) == before
    monkeypatch.setattr(torch, "eye", None)
    copied = deepcopy(module)
    torch.testing.assert_close(plan.run(copied, images), module(images))
    assert all(tensor.is_meta for tensor in copied.to("meta").buffers())


@pytest.mark.parametrize("pool", [nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((1, 1)), nn.AdaptiveAvgPool2d(2)])
def test_means_of_all_pixels_are_no_poolings(pool, monkeypatch):
    """`vmap` would make these client by client on a GPU."""
    module, images = nn.Sequential(conv(8, 8), nn.ReLU(), pool, nn.Flatten()).eval(), torch.rand(2, 8, 7, 7)
    plan, expected = traced(module, images)[0], module(images)
    monkeypatch.setattr(type(pool), "forward", None)
    if pool.output_size == 2:
        with pytest.raises(TypeError):
            plan.run(module, images)
    else:
        torch.testing.assert_close(plan.run(module, images), expected)


def test_tracing_makes_no_lock_between_processes(monkeypatch):
    """A worker that ends at once would leave its semaphore behind, and Python warns of it on the terminal."""
    monkeypatch.setattr("torch.fx.interpreter.tqdm", None)  # PyTorch's progress bar makes one
    assert traced(nn.Sequential(conv(3, 4), nn.ReLU()), torch.rand(2, 3, 8, 8))[1] == ""
