import colorsys

import pytest
import torch
from torch.func import vmap

from fedade.checking.trials import OnlyRecordable
from fedade.core.tokens import PADDING
from fedade.parts.augmentation import DELETION, _blurred, _moved, _turned, augmentations, deletions


def images(channels: int, side: int) -> torch.Tensor:
    flat = torch.arange(2 * channels * side * side) * 37 % 256
    return flat.reshape(2, channels, side, side).to(torch.uint8)


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 32), (3, 1)])
def test_views_are_images_that_differ(channels, side):
    originals = images(channels, side)
    first, second, third = augmentations(originals, torch.tensor(5), 3)
    for view in (first, second, third):
        assert view.shape == originals.shape
        assert ((view >= 0) & (view <= 255)).all()
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


def test_views_resemble_their_original():
    smooth = torch.linspace(0, 200, 16).expand(1, 1, 16, 16)
    for view in augmentations(smooth, torch.tensor(7), 8):
        assert torch.corrcoef(torch.stack([view.flatten(), smooth.flatten()]))[0, 1] > 0.95


def mirrored(view: torch.Tensor) -> bool:
    return bool(view[..., 0].mean() > view[..., -1].mean())


def test_colour_images_are_mirrored_half_of_the_time_and_grey_ones_never():
    slope = torch.linspace(0, 200, 16).expand(1, 3, 16, 16)
    turned = [mirrored(view) for view in augmentations(slope, torch.tensor(3), 60)]
    assert 15 < sum(turned) < 45
    assert not any(mirrored(view) for view in augmentations(slope[:, :1], torch.tensor(3), 60))


def test_views_depend_on_the_key_alone_and_can_be_mapped():
    originals, keys = images(1, 8), torch.tensor([1, 2])
    together = vmap(lambda key: torch.stack(list(augmentations(originals, key, 2))))(keys)
    for row, key in enumerate(keys):
        torch.testing.assert_close(together[row], torch.stack(list(augmentations(originals, key, 2))))
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize("channels", [1, 3])
def test_views_can_be_recorded_as_a_cuda_graph(channels):
    originals, key = images(channels, 8), torch.tensor(4)
    with OnlyRecordable():
        assert len(list(augmentations(originals, key, 2))) == 2


def test_a_view_of_a_text_lacks_some_tokens_and_keeps_the_order_of_the_others():
    texts = torch.arange(1, 401, dtype=torch.int32).reshape(10, 40)
    texts[:, 30:] = PADDING
    shares = []
    for view in deletions(texts, torch.tensor(3), 20):
        assert view.dtype == texts.dtype
        for text, shortened in zip(texts, view, strict=True):
            kept = shortened[shortened != PADDING]
            assert kept[0] == text[0]
            assert (kept.diff() > 0).all()
            assert torch.isin(kept, text[:30]).all()
            assert (shortened[len(kept) :] == PADDING).all()
            shares.append(1 - len(kept) / 30)
    assert sum(shares) / len(shares) == pytest.approx(DELETION * 29 / 30, abs=0.02)


def test_views_of_texts_are_those_of_every_client_alone():
    texts = torch.arange(60, dtype=torch.int32).reshape(3, 2, 10)
    keys = torch.tensor([1, 2, 3])
    together = vmap(lambda text, key: torch.stack(list(deletions(text, key, 2))))(texts, keys)
    for one, text, key in zip(together, texts, keys, strict=True):
        assert torch.equal(one, torch.stack(list(deletions(text, key, 2))))


@pytest.mark.parametrize("share", [-0.06, 0.0, 0.05, 0.5])
def test_hues_turn_as_the_standard_library_turns_them(share):
    pixels = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    turned = _turned(pixels, torch.tensor(share))
    for before, after in zip(pixels.movedim(1, -1).reshape(-1, 3), turned.movedim(1, -1).reshape(-1, 3), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*before.tolist())
        expected = torch.tensor(colorsys.hsv_to_rgb((hue + share) % 1, saturation, value))
        torch.testing.assert_close(after, expected, atol=1e-4, rtol=0)


def test_moves_are_turns_shifts_and_scales_that_repeat_the_edge():
    pixels = torch.rand(1, 2, 8, 8, generator=torch.Generator().manual_seed(2))
    zero, one = torch.zeros(()), torch.ones(())
    quarter = _moved(pixels, torch.tensor(torch.pi / 2), (zero, zero), one)
    torch.testing.assert_close(quarter, torch.rot90(pixels, -1, (2, 3)), atol=1e-5, rtol=0)
    down = _moved(pixels, zero, (one, zero), one)
    torch.testing.assert_close(down[..., 1:, :], pixels[..., :-1, :], atol=1e-5, rtol=0)
    torch.testing.assert_close(down[..., 0, :], pixels[..., 0, :], atol=1e-5, rtol=0)
    slope = torch.arange(8.0).expand(1, 1, 8, 8)
    torch.testing.assert_close(_moved(slope, zero, (zero, zero), 2 * one), 1.75 + slope / 2, atol=1e-5, rtol=0)
    torch.testing.assert_close(_moved(pixels[..., :1, :1], zero, (one, one), one), pixels[..., :1, :1])


def test_blurring_keeps_the_mean_and_takes_contrast():
    pixels = torch.rand(1, 1, 12, 12, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(_blurred(pixels, torch.zeros(()), -1), pixels)
    soft = _blurred(_blurred(pixels, torch.tensor(0.5), -1), torch.tensor(0.5), -2)
    assert soft.std() < 0.8 * pixels.std()
    torch.testing.assert_close(soft.mean(), pixels.mean(), atol=0.02, rtol=0)


def test_light_and_contrast_reach_as_far_as_published():
    flat = torch.full((1, 1, 4, 4), 100.0)
    means = torch.stack([view.mean() for view in augmentations(flat, torch.tensor(5), 400)]) / 255
    # Of light times a power: 100/255 · 1.4 to the 0.7 and 100/255 · 0.6 to the 1.3, not further.
    assert 0.53 < means.max() < (100 / 255 * 1.4) ** 0.7 + 0.02
    assert (100 / 255 * 0.6) ** 1.3 - 0.02 < means.min() < 0.21
