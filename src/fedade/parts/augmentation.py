"""Random views of inputs in plain tensor arithmetic: of images of any size and number of channels, and of texts."""

from collections.abc import Iterator

import torch
from torch import Tensor

from fedade.core.deployment import Deployment
from fedade.core.errors import FedadeError
from fedade.core.tokens import PADDING
from fedade.maths.counter import normal, uniform

SHIFT = 1 / 16
"""Largest shift, as a share of the side (this constant and the next: CoTTA's released transforms)."""
SCALE, BRIGHTNESS, CONTRAST = 0.05, 0.2, 0.15
NOISE = 0.005
"""Deviation, on the scale of 0 to 1."""
DELETION = 0.1
"""Probability with which a token is left out (Wei and Zou, 2019)."""
_WHITE = 255.0
_COLOUR = 3
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
    One draw serves a whole view, as in CoTTA: shift, scale, brightness, contrast, noise, and a mirror image of colour
    pictures only, since mirrored characters are other characters."""
    channels, height, width = images.shape[-3:]
    pixels = images.to(torch.float32)
    draws = uniform(key, (6, copies), 0)
    noise = normal(key, (copies, channels, height, width), 1) * NOISE * _WHITE
    for view in range(copies):
        down, right, zoom, light, contrast, mirror = draws[:, view]
        rows = _resampling(height, _spread(down, SHIFT * height), 1 + _spread(zoom, SCALE), pixels.device)
        columns = _resampling(width, _spread(right, SHIFT * width), 1 + _spread(zoom, SCALE), pixels.device)
        if channels == _COLOUR:
            columns = torch.where(mirror < 0.5, columns, columns.flip(0))
        seen = rows @ pixels @ columns.T * (1 + _spread(light, BRIGHTNESS))
        mean = seen.mean((-3, -2, -1), keepdim=True)
        yield (mean + (1 + _spread(contrast, CONTRAST)) * (seen - mean) + noise[view]).clamp(0, _WHITE)


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


def _resampling(size: int, shift: Tensor, scale: Tensor, device: torch.device) -> Tensor:
    """Matrix `[size, size]` of linear interpolation along one axis; beyond the edge the edge is repeated."""
    places = torch.arange(size, device=device, dtype=torch.float32)
    centre = (size - 1) / 2
    wanted = (centre + (places - centre) * scale + shift).clamp(0, size - 1)
    return (1 - (wanted.unsqueeze(-1) - places).abs()).clamp_min(0)
