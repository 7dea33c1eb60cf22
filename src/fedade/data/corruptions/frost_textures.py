"""Procedural frost, in place of the photographs of the official CIFAR-C."""

from functools import cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from fedade.data.corruptions.pixels import ByteImages, Unit, cv2, levels, unit

Points = NDArray[np.float64]

NUM_TEXTURES = 5
"""As many as the reference ever picks from."""

_SIDE = 1000
_SCALE = 0.2
_ICE = np.array([0.80, 0.91, 1.0], dtype=np.float32)


# `cache` alone would let every thread of a first call build the textures.
_BUILDING = Lock()


def frost_textures() -> ByteImages:
    """Five frosted panes, `[5, 200, 200, 3]`, the same on every call.

    Each is made at the size of a photograph, from feathers of ice (branching strokes) on a pane of
    ridged fractal noise with thinner and thicker places, and is then scaled by 0.2 like the official
    photographs.
    """
    with _BUILDING:
        return _textures()


@cache
def _textures() -> ByteImages:
    panes = [_pane(np.random.Generator(np.random.Philox(key=number))) for number in range(NUM_TEXTURES)]
    textures = np.stack([cv2.resize(pane, (0, 0), fx=_SCALE, fy=_SCALE) for pane in panes]).astype(np.uint8)
    textures.flags.writeable = False
    return textures


def _pane(generator: np.random.Generator) -> ByteImages:
    thickness = _frozen_places(_fractal_noise(generator, coarsest=3), clear_share=generator.uniform(0.2, 0.45))
    ridges = (1 - np.abs(2 * _fractal_noise(generator, coarsest=12) - 1)) ** 3
    ice = thickness * (0.3 + 0.6 * ridges) + (0.25 + 0.75 * thickness) * 0.6 * _feathers(generator)
    return levels(ice[..., None] * _ICE)


def _fractal_noise(generator: np.random.Generator, coarsest: int, octaves: int = 6) -> Unit:
    """Smooth noise in [0, 1]: octaves of random grids, each twice as fine and half as strong."""
    total = np.zeros((_SIDE, _SIDE), dtype=np.float32)
    for octave in range(octaves):
        grid = generator.random((coarsest << octave,) * 2, dtype=np.float32)
        total += cv2.resize(grid, (_SIDE, _SIDE), interpolation=cv2.INTER_CUBIC) / 2**octave
    return np.asarray((total - total.min()) / np.ptp(total), dtype=np.float32)


def _frozen_places(noise: Unit, clear_share: float) -> Unit:
    """Noise pushed towards 0 and 1, so that a share of the pane is clear and the rest frozen."""
    return np.asarray(1 / (1 + np.exp(-10 * (noise - np.quantile(noise, clear_share)))), dtype=np.float32)


def _feathers(generator: np.random.Generator, seeds: int = 45, stems: int = 6) -> Unit:
    """Ice crystals in [0, 1]: from each seed grow stems with barbs on both sides."""
    canvas = np.zeros((_SIDE, _SIDE), dtype=np.uint8)
    for seed in generator.uniform(0, _SIDE, (seeds, 2)):
        first_turn = generator.uniform(0, 2 * np.pi)
        for turn in first_turn + generator.normal(0, 0.8, stems):
            strokes = _feather(seed, turn, length=generator.uniform(60, 280), bend=generator.normal(0, 0.8))
            shade = int(generator.integers(110, 256))
            cv2.polylines(canvas, list(np.rint(strokes).astype(np.int32)), False, shade, 3, cv2.LINE_AA)
    return unit(np.asarray(cv2.GaussianBlur(canvas, (0, 0), sigmaX=1.5), dtype=np.uint8))


def _feather(seed: Points, turn: float, length: float, bend: float) -> Points:
    """Strokes `[S, 2, 2]` of one stem and its barbs, which lean 60 degrees and shorten to the tip."""
    along = np.linspace(0, 1, max(2, int(length / 12)))
    heading = turn + bend * along
    steps = length / len(along) * _directions(heading)
    stem = seed + np.cumsum(steps, axis=0)
    reach = (0.3 * length * (1 - along))[:, None]
    barbs = [stem + reach * _directions(heading + lean) for lean in (-np.pi / 3, np.pi / 3)]
    ends = np.concatenate([stem[1:], *barbs])
    starts = np.concatenate([stem[:-1], stem, stem])
    return np.stack([starts, ends], axis=1)


def _directions(angles: Points) -> Points:
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)
