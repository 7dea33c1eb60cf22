"""Images are measured and normalised as plain PyTorch does it, with gradients, under every combination of `vmap` and
`grad`."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, vmap

from fedade.kernels import reference

pytest.importorskip("triton")

EPS = 1e-5
SHAPES = [(4, 8, 6, 5), (3, 5, 3, 3), (2, 300, 2, 3), (1, 1, 1, 1), (18, 100, 1, 1), (2, 17, 13, 11)]
"""Samples, channels, height, width: one of each; more than a block holds; no multiples of one."""


def both():
    from fedade.kernels import moment_lanes, scaling_lanes

    class Ours:
        channel_moments, measured = moment_lanes.channel_moments, moment_lanes.measured
        normalised = scaling_lanes.normalised

    return Ours, reference


def drawn(*shape: int, seed: int = 3, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_moments_and_scaling_of_clients(shape):
    images, residual = drawn(2, 3, *shape), drawn(2, 3, *shape, seed=4)
    scale, shift, mean = drawn(3, 2, 3, shape[1])
    variance = drawn(2, 3, shape[1]).square()
    ours, first = (scale, shift, mean, variance), (scale[0, 0], shift[0, 0], mean[0, 0], variance[0, 0])

    def everything(module):
        def one(images, residual, *of_channels):
            affine = reference.Affine(*of_channels, EPS)
            return (
                module.channel_moments(images),
                *module.measured(images, True),
                *module.measured(images, False),
                module.normalised(images, affine, residual, True),
                module.normalised(images, affine, None, False),
            )

        own, common = vmap(vmap(one)), vmap(vmap(one, (0, 0, *(None,) * 4)), (0, 0, *(None,) * 4))
        only_statistics = vmap(vmap(one, (0, 0, None, None, 0, 0)), (0, 0, None, None, 0, 0))
        return (
            *own(images, residual, *ours),
            *common(images, residual, *first),
            *only_statistics(images, residual, *first[:2], *ours[2:]),
        )

    ours_found, expected = map(everything, both())
    for one, other in zip(ours_found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def adapting(module, whole, relu, direction):
    """A layer as methods use it: its statistics are mixed of the batch's, or its samples' own, and given ones."""

    def loss(images, scale, shift, mean, variance, residual):
        same, means, variances = module.measured(images, whole)
        means, variances = (value.squeeze(0) if whole else value for value in (means, variances))
        affine = reference.Affine(scale, shift, 0.7 * means + 0.3 * mean, 0.7 * variances + 0.3 * variance, EPS)
        return (module.normalised(same, affine, residual, relu).double() * direction).sum()

    return loss


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("relu", "adds"), [(True, True), (True, False), (False, True), (False, False)])
def test_gradients_are_those_of_autograd_in_float64(shape, whole, relu, adds):
    """By images, scale, shift, given statistics and residual; of one client, of mapped ones, and of all together."""
    images, residual = drawn(3, *shape), drawn(3, *shape, seed=4) if adds else None
    channels = drawn(2, 3, shape[1]), drawn(2, shape[1], seed=5)
    given = images, *channels[0], channels[1][0], channels[1][1].square(), residual
    dims = (0, 0, 0, None, None, 0 if adds else None)
    places, direction = range(6 if adds else 5), drawn(*shape, dtype=torch.float64)

    def everything(module, dtype):
        tensors = [tensor if tensor is None else tensor.to(dtype) for tensor in given]
        slopes = grad(adapting(module, whole, relu, direction), tuple(places))

        def total(*tensors):
            return vmap(adapting(module, whole, relu, direction), dims)(*tensors).sum()

        alone = [tensor if dim is None else tensor[0] for tensor, dim in zip(tensors, dims, strict=True)]
        return *slopes(*alone), *vmap(slopes, dims)(*tensors), *grad(total, tuple(places))(*tensors)

    ours, theirs = both()
    for found, expected in zip(everything(ours, torch.float32), everything(theirs, torch.float64), strict=True):
        size = float(expected.abs().max())
        torch.testing.assert_close(found.double(), expected, atol=1e-3 * size + 1e-6, rtol=1e-3)


@given(
    st.integers(1, 6), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.booleans(), st.booleans(),
    st.sampled_from([torch.bfloat16, torch.float32]),
)  # fmt: skip
@settings(deadline=None, max_examples=25)
def test_any_shape_in_any_precision(samples, channels, height, width, whole, relu, dtype):
    shape = samples, channels, height, width
    images, residual = drawn(2, *shape).to(dtype), drawn(2, *shape, seed=4).to(dtype)
    scale, shift, mean, variance = drawn(2, channels), drawn(2, channels, seed=5), drawn(channels), drawn(channels)
    tensors = images, scale, shift, mean, variance.square() + 0.1, residual
    dims, direction = (0, 0, 0, None, None, 0), drawn(*shape, dtype=torch.float64)
    ours, theirs = both()
    found = vmap(grad(adapting(ours, whole, relu, direction), (0, 1, 2, 5)), dims)(*tensors)
    exact = [tensor.double() for tensor in tensors]
    expected = vmap(grad(adapting(theirs, whole, relu, direction), (0, 1, 2, 5)), dims)(*exact)
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-3
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is (dtype if one.ndim == 5 else torch.float32)
        torch.testing.assert_close(one.double(), other, atol=tolerance * float(other.abs().max()) + 1e-6, rtol=0.02)


@pytest.mark.parametrize("whole", [True, False])
def test_a_small_variance_around_a_large_mean_is_found(whole):
    images = 1000 + 0.01 * drawn(5, 4, 8, 8).double()
    ours, theirs = both()
    _, mean, variance = ours.measured(images.float(), whole)
    _, expected_mean, expected = theirs.measured(images.float().double(), whole)
    torch.testing.assert_close(mean.double(), expected_mean, rtol=1e-6, atol=0)
    torch.testing.assert_close(variance.double(), expected, rtol=1e-3, atol=0)


def test_statistics_without_gradient_leave_images_alone():
    """What is detached from the batch gives back nothing, and only what is needed is made."""
    images, scale = drawn(3, 4, 2, 2), drawn(4)

    def loss(module):
        def of(images, scale):
            same, mean, variance = module.measured(images, True)
            affine = reference.Affine(scale, scale, mean[0].detach(), variance[0].detach(), EPS)
            return module.normalised(same, affine, None, True).square().sum()

        return of

    for places in (0, 1, (0, 1)):
        found, expected = (grad(loss(module), places)(images, scale) for module in both())
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_what_comes_in_as_half_goes_out_as_half():
    ours, _ = both()
    images, one = drawn(2, 4, 3, 3).half(), torch.ones(4)
    assert ours.channel_moments(images).dtype is torch.float32
    assert [value.dtype for value in ours.measured(images, True)] == [torch.float16, torch.float32, torch.float32]
    assert ours.normalised(images, reference.Affine(one, one, one, one, EPS), None, True).dtype is torch.float16
