"""The compiled CPU convolutions and clients side by side equal what is obvious, on every parameter."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from fedade.client_map import Vectorised, loop, side_by_side
from fedade.core.errors import FedadeError
from fedade.core.seeds import Seeds
from fedade.core.tree import leaves
from fedade.engine.clock import Clock
from fedade.engine.steps import Maps
from fedade.kernels import reference
from fedade.kernels.layer import Layer
from fedade.kernels.native import chain, library
from fedade.parts.rates import RateBounds
from fedade.speed.workload import Work, random_scenario

compiled = pytest.mark.skipif(library.native() is None, reason="needs a C++ compiler")

PLAIN_BLOCK, STRIDED_BLOCK = (
    (Layer(1), Layer(2, residual=1)),
    (Layer(3, 2), Layer(3, 2, relu=False), Layer(4, residual=5)),
)
RESIDUAL = (Layer(0), *PLAIN_BLOCK, *STRIDED_BLOCK)
RESIDUAL_SHAPES = ((32, 3, 3), (32, 32, 3), (32, 32, 3), (64, 32, 3), (64, 32, 1), (64, 64, 3))
CHAINS = {
    "a residual network": (RESIDUAL, RESIDUAL_SHAPES, (5, 3, 16, 16)),
    "tiles that do not fill a block": ((Layer(0),), ((64, 32, 3),), (1, 32, 4, 12)),
    "more channels": ((Layer(0), Layer(1, residual=0)), ((96, 96, 3), (96, 96, 3)), (2, 96, 8, 8)),
    "sizes that are no tiles": ((Layer(0), Layer(1, 2)), ((32, 32, 3), (64, 32, 3)), (3, 32, 7, 5)),
    "windows of five": ((Layer(0, 2, relu=False), Layer(1)), ((32, 32, 5), (32, 32, 1)), (2, 32, 9, 8)),
    "a residual of the images": ((Layer(0, residual=0),), ((32, 32, 3),), (2, 32, 8, 8)),
}


def material(name):
    layers, shapes, images = CHAINS[name]
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(o, c, k, k, generator=generator) / (k * c**0.5) for o, c, k in shapes]
    biases = [torch.randn(o, generator=generator) for o, _, _ in shapes]
    return layers, torch.randn(images, generator=generator), weights, biases


def in_double(tensors):
    return [tensor.double() for tensor in tensors]


def assert_near(found, expected):
    """Relative to the whole tensor: a relu whose input is nearly 0 may fall to either side."""
    assert found.shape == expected.shape
    assert (found - expected).norm() <= 2e-5 * expected.norm()


@compiled
@pytest.mark.parametrize("name", CHAINS)
def test_compiled_convolutions_and_all_gradients_equal_pytorchs_in_double_precision(name):
    layers, images, weights, biases = material(name)
    of_images = images.shape[1] % 32 == 0

    def loss(run):
        def value(images, weights, biases):
            output = run(layers, [images], weights, biases)
            return (output * torch.arange(output.numel()).view_as(output).cos()).sum(), output

        return grad(value, (0, 1, 2) if of_images else (1, 2), has_aux=True)

    found, output = loss(chain.fused_layers)(images, weights, biases)
    expected, exact = loss(reference.fused_layers)(images.double(), in_double(weights), in_double(biases))
    assert_near(output, exact)
    assert len(leaves(found)) == 2 * len(layers) + of_images
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        assert_near(one, other)


@compiled
def test_plain_backward_and_no_gradients_give_the_same_as_functions_of_functions():
    layers, images, weights, biases = material("a residual network")
    with torch.no_grad():
        quiet = chain.fused_layers(layers, [images], weights, biases)
    tracked = [weight.clone().requires_grad_() for weight in weights]
    chain.fused_layers(layers, [images], tracked, biases).sum().backward()
    expected = grad(lambda moved: chain.fused_layers(layers, [images], moved, biases).sum())(weights)
    torch.testing.assert_close(quiet, chain.fused_layers(layers, [images], weights, biases), rtol=0, atol=0)
    for one, other in zip(tracked, expected, strict=True):
        torch.testing.assert_close(one.grad, other, rtol=0, atol=0)


@compiled
def test_values_that_are_not_numbers_are_passed_on():
    layers, images, weights, biases = material("a residual network")
    images[1, 0, 3, 3] = torch.nan
    output = chain.fused_layers(layers, [images], weights, biases)
    assert output[1].isnan().any()
    assert output[0].isfinite().all()


@compiled
def test_what_it_cannot_do_is_left_to_others():
    layers, images, weights, _ = material("more channels")
    assert chain.suits(layers, [images], weights)
    assert not chain.suits(layers, [images.double()], weights)
    assert not chain.suits(*[[one] for one in (Layer(0, 2), images, weights[0][..., :1, :1])])  # nothing to gain
    assert not chain.suits(layers, [images], [weight[:16] for weight in weights])
    seen = []
    vmap(lambda one: seen.append(chain.suits(layers, [one], weights)) or one)(images.unsqueeze(0))
    vmap(grad(lambda one: seen.append(chain.suits(layers, [one], weights)) or one.sum()))(images.unsqueeze(0))
    assert seen == [False, False]


@compiled
@pytest.mark.parametrize("of", ["images", "weights"])
def test_second_derivatives_are_those_of_plain_pytorch(of):
    layers, images, weights, biases = material("a residual network")

    def curved(module):
        def loss(moved):
            given = ([moved], weights) if of == "images" else ([images], [moved, *weights[1:]])
            return module.fused_layers(layers, *given, biases).pow(2).sum()

        return grad(lambda value: grad(loss)(value).pow(2).sum())

    start = images if of == "images" else weights[0]
    found, expected = curved(chain)(start), curved(reference)(start)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_without_a_compiler_one_warning_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDADE_CACHE", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    library._loaded.cache_clear()
    try:
        with pytest.warns(UserWarning, match=r"no C\+\+ compiler found; install one of"):
            assert library.native() is None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert library.native() is None
        _, images, weights, _ = material("more channels")
        assert not chain.suits(CHAINS["more channels"][0], [images], weights)
    finally:
        library._loaded.cache_clear()


def test_a_compiler_that_fails_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDADE_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(FedadeError, match=r"false cannot compile convolution.cpp \(exit code 1\)"):
        library._compiled()
    assert not list(tmp_path.iterdir())


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv("FEDADE_NATIVE", "0")
    library._loaded.cache_clear()
    try:
        assert library.native() is None
    finally:
        library._loaded.cache_clear()


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


MOOD = ContextVar("mood", default="none")


def test_clients_side_by_side_see_what_one_after_the_other_see(two_threads):
    token = MOOD.set("calm")
    seen = []

    def one(tree):
        seen.append((MOOD.get(), torch.is_grad_enabled(), torch.get_num_threads()))
        return {"sum": tree["a"].sum() + tree["b"], "twice": 2 * tree["a"]}

    rows = {"a": torch.rand(7, 3), "b": torch.rand(7)}
    try:
        with torch.no_grad():
            found, expected = side_by_side(one, rows), loop(one, rows)
        assert torch.get_num_threads() == 2
    finally:
        MOOD.reset(token)
    assert seen[:7] == [("calm", False, 1)] * 7
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0)


def test_an_error_of_one_client_is_the_error_of_all(two_threads):
    def one(value):
        if value == 2:
            raise FedadeError("client 2 is broken")
        return value

    with pytest.raises(FedadeError, match="client 2"):
        side_by_side(one, torch.arange(4))


@compiled
def test_whole_runs_on_compiled_convolutions_equal_the_plain_loop(two_threads, monkeypatch):
    work = Work(
        clients=4, participants=2, rounds=2, timesteps=2, samples=6, input_shape=(3, 16, 16), rate=RateBounds(high=0.5)
    )
    scenario = random_scenario(work, "cpu")
    used = []
    run = chain.fused_layers
    monkeypatch.setattr(chain, "fused_layers", lambda *arguments: used.append(1) or run(*arguments))

    def final(client_map, fast):
        if not fast:
            monkeypatch.setattr(chain, "suits", lambda *_: False)
            torch.set_num_threads(1)  # quicker where other work is running
        clock = Clock(work.method, scenario, work.exchange_rounds, Seeds(0), Maps(client_map, client_map))
        world = clock.beginning()
        rows = list(clock.run(world))
        return world, rows

    fast, fast_rows = final(side_by_side, True)
    assert used
    count = len(used)
    for client_map in (loop, Vectorised()):
        slow, slow_rows = final(client_map, False)
        assert len(used) == count
        assert len(leaves((fast.clients, fast.server))) == len(leaves((slow.clients, slow.server))) > 25
        for one, other in zip(leaves((fast.clients, fast.server)), leaves((slow.clients, slow.server)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        for one, other in zip(fast_rows, slow_rows, strict=True):
            np.testing.assert_allclose(one["learning_rate"], other["learning_rate"], rtol=1e-3)
            np.testing.assert_array_equal(one["passes"], other["passes"])


def test_threads_that_ask_at_once_compile_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDADE_CACHE", str(tmp_path))
    library._loaded.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            found = set(pool.map(lambda _: library.native(), range(4)))
        assert len(found) == 1
        assert len(list(tmp_path.iterdir())) == (None not in found)
    finally:
        library._loaded.cache_clear()
