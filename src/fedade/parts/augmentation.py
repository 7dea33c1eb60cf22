"""Random views of inputs in plain tensor arithmetic: of images of any size and number of channels, and of texts."""

import math
from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.tokens import PADDING
from fedade.maths.counter import normal, uniform

BRIGHTNESS, CONTRAST, SATURATION, HUE, GAMMA = 0.4, 0.3, 0.5, 0.06, 0.3
"""Largest changes; of the hue as a share of the circle. All that follow but the last: CoTTA's released transforms."""
ROTATION = math.radians(15)
SHIFT, SCALE = 1 / 16, 0.1
"""Largest shift, as a share of the side, and change of size."""
BLUR = 0.5
"""Largest deviation of the blur, in pixels."""
NOISE = 0.005
"""Deviation, on the scale of 0 to 1."""
DELETION = 0.1
"""Probability with which a token is left out (Wei and Zou, 2019)."""
_WHITE, _BLACK = 255.0, 1e-6
"""The lightest pixel as it is stored; and the darkest, of 1, whose power has a slope."""
_COLOUR = 3
_BLUR_SIZE, _SHARP = 5, 1e-3
"""Pixels of the blur, and its least deviation."""
_IMAGES = 4
"""Axes of a batch of images."""


def refuse_without_views(deployment: Deployment, method: str) -> None:
    """Inputs of which nobody knows what leaves their class alone have no random views."""
    inputs = deployment.reference.inputs
    if inputs.ndim != _IMAGES and not _are_texts(inputs):
        shape = tuple(inputs.shape[1:])
        raise FedadeError(f"{method}: needs images or texts, but inputs have the shape {shape}; choose another method")


def views(inputs: Tensor, key: Tensor, copies: int) -> Iterator[Tensor]:
    """`copies` random views of a batch of images or texts, one at a time to bound memory."""
    return (deletions if _are_texts(inputs) else augmentations)(inputs, key, copies)


def random_view(inputs: Tensor, key: Tensor) -> Tensor:
    return next(views(inputs, key, 1))


def augmentations(images: Tensor, key: Tensor, copies: int) -> Iterator[Tensor]:
    """`copies` views of a batch `[n, channels, height, width]` with values in 0..255, one at a time to bound memory.
    One draw serves a whole view, as in CoTTA. There the changes of colour come in a random order, here always in one;
    and only colour pictures are mirrored, since mirrored characters are other characters."""
    channels, height, width = images.shape[-3:]
    pixels = images.to(torch.float32) / _WHITE
    draws = uniform(key, (11, copies), 0)
    noise = normal(key, (copies, channels, height, width), 1) * NOISE
    for view in range(copies):
        *colours, angle, down, right, zoom, blur, mirror = draws[:, view]
        shift = _spread(down, SHIFT * height), _spread(right, SHIFT * width)
        seen = _recoloured(pixels, *colours)
        seen = _moved(seen, _spread(angle, ROTATION), shift, 1 + _spread(zoom, SCALE))
        seen = _blurred(_blurred(seen, BLUR * blur, -1), BLUR * blur, -2)
        if channels == _COLOUR:
            seen = torch.where(mirror < 0.5, seen, seen.flip(-1))
        yield (seen + noise[view]).clamp(0, 1) * _WHITE


def _recoloured(
    pixels: Tensor, light: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor, gamma: Tensor
) -> Tensor:
    seen = (pixels * (1 + _spread(light, BRIGHTNESS))).clamp(0, 1)
    mean = _grey(seen).mean((-3, -2, -1), keepdim=True)
    seen = torch.lerp(mean, seen, 1 + _spread(contrast, CONTRAST)).clamp(0, 1)
    if pixels.shape[-3] == _COLOUR:
        seen = torch.lerp(_grey(seen), seen, 1 + _spread(saturation, SATURATION)).clamp(0, 1)
        seen = _turned(seen, _spread(hue, HUE))
    return seen.clamp_min(_BLACK).pow(1 + _spread(gamma, GAMMA))


def _grey(pixels: Tensor) -> Tensor:
    """Luminance (ITU-R BT.601) of colour pictures; of others the mean of their channels."""
    if pixels.shape[-3] != _COLOUR:
        return pixels.mean(-3, keepdim=True)
    red, green, blue = torch.split(pixels, 1, -3)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def _turned(pixels: Tensor, share: Tensor) -> Tensor:
    """Colours whose hue is a share of the circle further on, as HSV has it."""
    red, green, blue = torch.split(pixels, 1, -3)
    value, least = pixels.amax(-3, keepdim=True), pixels.amin(-3, keepdim=True)
    chroma = value - least
    steps = chroma.clamp_min(_BLACK)
    sixths = torch.where(
        value == red,
        (green - blue) / steps,
        torch.where(value == green, 2 + (blue - red) / steps, 4 + (red - green) / steps),
    )
    places = torch.arange(5, 0, -2, device=pixels.device).reshape(_COLOUR, 1, 1)  # no list: it would be copied there
    apart = (places + sixths + 6 * share) % 6
    return value - chroma * torch.minimum(apart, 4 - apart).clamp(0, 1)


def _moved(pixels: Tensor, angle: Tensor, shift: tuple[Tensor, Tensor], zoom: Tensor) -> Tensor:
    """Turned about the centre, scaled and shifted, with linear interpolation; beyond the edge the edge is repeated."""
    (height, width), (down, right) = pixels.shape[-2:], shift
    y = (torch.arange(height, device=pixels.device) - (height - 1) / 2 - down).unsqueeze(-1)
    x = torch.arange(width, device=pixels.device) - (width - 1) / 2 - right
    cos, sin = angle.cos() / zoom, angle.sin() / zoom
    places = torch.stack([(cos * x + sin * y) * _to_unit(width), (cos * y - sin * x) * _to_unit(height)], -1)
    where = places.expand(len(pixels), -1, -1, -1)
    return grid_sample(pixels, where, padding_mode="border", align_corners=True)


def _to_unit(size: int) -> float:
    """Of pixels from the centre, so that the last one is at 1."""
    return 2 / max(size - 1, 1)


def _blurred(pixels: Tensor, deviation: Tensor, axis: int) -> Tensor:
    """A normal law's weights over five pixels of an axis; beyond the edge the edge is repeated."""
    reach = _BLUR_SIZE // 2
    apart = torch.arange(_BLUR_SIZE, device=pixels.device) - reach
    weights = (-0.5 * (apart / (deviation + _SHARP)) ** 2).softmax(-1)
    wide = pad(pixels, (reach, reach, 0, 0) if axis == -1 else (0, 0, reach, reach), mode="replicate")
    places = (wide.narrow(axis, place, pixels.shape[axis]) for place in range(_BLUR_SIZE))
    return reduce(torch.add, (weight * seen for weight, seen in zip(weights.unbind(), places, strict=True)))


def deletions(tokens: Tensor, key: Tensor, copies: int) -> Iterator[Tensor]:
    """`copies` views of texts `[n, L]` without some of their tokens, never the first (EDA, Wei and Zou, 2019)."""
    length = tokens.shape[-1]
    draws = uniform(key, (copies, *tokens.shape), 0)
    places = torch.arange(length, device=tokens.device)
    for view in range(copies):
        kept = (tokens != PADDING) & ((draws[view] >= DELETION) | (places == 0))
        order = torch.where(kept, places, places + length).argsort(-1)  # what is kept moves together, padding follows
        yield torch.where(kept.gather(-1, order), tokens.gather(-1, order), PADDING)


def _are_texts(inputs: Tensor) -> bool:
    return inputs.ndim == 2 and not inputs.is_floating_point()


def _spread(uniform_draw: Tensor, reach: float) -> Tensor:
    return (2 * uniform_draw - 1) * reach
