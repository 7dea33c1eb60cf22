"""Small kernels are what plain PyTorch does, under every combination of `vmap` and `grad`."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.func import grad, vmap

from fedade import kernels
from fedade.kernels import reference

pytest.importorskip("triton")


EPS = 1e-5


@pytest.mark.parametrize(("said", "fused"), [("0", False), ("1", True), (None, True)])
def test_a_variable_switches_them_off(said, fused, monkeypatch):
    monkeypatch.delenv(kernels.SWITCH, raising=False)
    if said is not None:
        monkeypatch.setenv(kernels.SWITCH, said)
    kernels._has_triton.cache_clear()
    try:
        assert kernels.runs_fused(SimpleNamespace(is_cuda=True)) is fused
    finally:
        kernels._has_triton.cache_clear()


@pytest.mark.parametrize("classes", [3, 10, 16])
def test_iterations_in_one_kernel_are_iterations_one_by_one(classes):
    from fedade.kernels.simplex import iterate

    generator = torch.Generator().manual_seed(1)
    matrix = 0.1 * torch.randn(classes, classes, generator=generator, dtype=torch.float64)
    rows = torch.randn(2, 3, classes, generator=generator, dtype=torch.float64)
    expected = reference.absolute_iterations(rows, 2 * rows, matrix, 0.15, 30)
    torch.testing.assert_close(iterate(rows, 2 * rows, matrix, 0.15, 30), expected)
    nested = vmap(vmap(lambda row: iterate(row, 2 * row, matrix, 0.15, 30)))(rows)
    torch.testing.assert_close(nested, expected)


@pytest.mark.parametrize(("samples", "classes", "columns"), [(5, 3, 1), (16, 10, 2), (7, 17, 3)])
def test_mixtures_in_one_kernel_are_fitted_as_one_by_one(samples, classes, columns):
    from fedade.kernels.simplex import mixture_weights

    generator = torch.Generator().manual_seed(3)
    ratios = torch.rand(2, 3, samples, classes, generator=generator, dtype=torch.float64)
    ratios[0, 0, 0] = 0  # a sample that no class explains
    counted = torch.rand(2, 3, classes, columns, generator=generator, dtype=torch.float64)
    start = torch.full((classes,), 1 / classes, dtype=torch.float64)
    expected = reference.mixture_weights(ratios, counted, start, 8)
    torch.testing.assert_close(mixture_weights(ratios, counted, start, 8), expected)
    nested = vmap(vmap(lambda own, count: mixture_weights(own, count, start, 8)))(ratios, counted)
    torch.testing.assert_close(nested, expected)
    common = vmap(lambda own: mixture_weights(own, counted[0, 0], start, 8))(ratios)
    torch.testing.assert_close(common, reference.mixture_weights(ratios, counted[0, 0], start, 8))
    of_counts = vmap(lambda count: mixture_weights(ratios[0], count, start, 8))(counted[0])
    torch.testing.assert_close(
        of_counts, torch.stack([reference.mixture_weights(ratios[0], count, start, 8) for count in counted[0]])
    )


@pytest.mark.parametrize(("rows", "channels"), [(3, 5), (70, 16), (2, 33), (1, 2), (1030, 4)])
@pytest.mark.parametrize("own", [(0, 0, 0), (0, None, None), (None, 0, 0), (0, 0, None)])
def test_tokens_are_normalised_with_gradients(rows, channels, own):
    from fedade.kernels import norm_lanes

    generator = torch.Generator().manual_seed(4)
    shapes = (2, rows, channels), (channels,), (channels,)
    given = [
        torch.randn(*((3,) if dim == 0 else ()), *shape, generator=generator)
        for shape, dim in zip(shapes, own, strict=True)
    ]
    direction = torch.randn(2, rows, channels, generator=generator)

    def everything(module):
        def one(*tensors):
            found = module.layer_norm(*tensors, EPS, torch.float32)
            return (found, tensors[0]) if module is reference else found

        def loss(*tensors, alone=False):
            normal, passed = one(*tensors)
            return (normal * direction).sum() + (0 if alone else (passed.square() * direction).sum())

        def of_all(*tensors):
            return vmap(loss, own)(*tensors).sum()

        each = vmap(grad(loss, (0, 1, 2)), own)(*given)
        alone = vmap(grad(partial(loss, alone=True), (0, 1, 2)), own)(*given)
        with torch.no_grad():
            values = vmap(one, own)(*given)
        return *values, *each, *alone, *grad(of_all, (0, 1, 2))(*given)

    for found, expected in zip(everything(norm_lanes), everything(reference), strict=True):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
    half, _ = norm_lanes.layer_norm(torch.ones(1, 2, 4).half(), torch.ones(4), torch.zeros(4), EPS, torch.bfloat16)
    assert half.dtype is torch.bfloat16


def test_pixels_are_normalised_for_all_clients_at_once():
    from fedade.kernels.pixel_lanes import normalised

    generator = torch.Generator().manual_seed(2)
    pixels = torch.randint(0, 256, (2, 3, 4, 3, 5, 7), generator=generator, dtype=torch.uint8)
    mean, deviation = torch.tensor([100.0, 120.0, 90.0]), torch.tensor([60.0, 50.0, 70.0])
    expected = reference.normalised_pixels(pixels.flatten(0, 2), mean, deviation)
    found = vmap(vmap(lambda own: normalised(own, mean, deviation, torch.float32)))(pixels)
    torch.testing.assert_close(found.flatten(0, 2), expected)
    assert normalised(pixels[0, 0], mean, deviation, torch.float16).dtype is torch.float16


def said_by(program: str, cache: Path) -> str:
    """What a program prints that compiles kernels, and does not interpret them."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    words = [sys.executable, "-m", f"tests.kernels.{program}"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_they_compile_for_a_gpu_on_a_machine_without_one(tmp_path):
    assert len(said_by("compiling", tmp_path).splitlines()) == 33


@pytest.mark.slow
def test_kernels_are_compiled_once_each_before_any_is_run(tmp_path):
    launches, kernels, failures = said_by("side_by_side", tmp_path).split(maxsplit=2)
    assert failures.strip() == "[]"
    assert int(launches) == int(kernels) > 6
