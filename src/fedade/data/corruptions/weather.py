"""Weather and dirt: fog, frost (procedural, in place of the photographs of the official CIFAR-C), snow and spatter."""

from functools import cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from fedade.data.corruptions.blur import clipped_zoom, motion_blurred
from fedade.data.corruptions.pixels import ByteImages, Draws, Unit, cv2, gaussian, levels, unit

_WATER = unit(np.array([175, 238, 238], dtype=np.uint8))
_MUD = unit(np.array([63, 42, 20], dtype=np.uint8))
_EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], dtype=np.float32)
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
Points = NDArray[np.float64]
NUM_TEXTURES = 5
"""As many as the reference ever picks from."""
_SIDE = 1000
_SCALE = 0.2
_ICE = np.array([0.80, 0.91, 1.0], dtype=np.float32)

# `cache` alone would let every thread of a first call build the textures.
_BUILDING = Lock()


def fog(images: ByteImages, draws: Draws, thickness: float, decay: float) -> ByteImages:
    """A bank of plasma is added, and the sum dimmed back to the image's own maximum."""
    height, width = images.shape[1:3]
    clean = unit(images)
    brightest = clean.max(axis=(1, 2, 3), keepdims=True)
    bank = plasma(draws, max(height, width), decay)[:, :height, :width, None]
    return levels((clean + thickness * bank) * brightest / (brightest + thickness))


def plasma(draws: Draws, side: int, decay: float) -> Unit:
    """Height maps in [0, 1] by the diamond-square algorithm, `[N, S, S]`, S a power of two >= side. As in the reference
    the wobble of a step enters twice, as range and as factor, so that it falls by decay squared each time the step is
    halved; the map wraps around."""
    side = 1 << (side - 1).bit_length()
    heights = np.zeros((len(draws.images), side, side), dtype=np.float32)
    step, wobble = side, 100.0

    def wobbled_mean(four_summed: Unit) -> Unit:
        return four_summed / 4 + wobble * draws.uniform(four_summed.shape[1:], -wobble, wobble)

    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        beneath = corners + np.roll(corners, -1, axis=1)
        heights[:, half::step, half::step] = wobbled_mean(beneath + np.roll(beneath, -1, axis=2))
        centres = heights[:, half::step, half::step]
        beside = centres + np.roll(centres, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        heights[:, ::step, half::step] = wobbled_mean(beside)
        above = centres + np.roll(centres, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        heights[:, half::step, ::step] = wobbled_mean(above)
        step, wobble = half, wobble / decay

    heights -= heights.min(axis=(1, 2), keepdims=True)
    heights /= heights.max(axis=(1, 2), keepdims=True)
    return heights


def frost(images: ByteImages, draws: Draws, kept: float, frosted: float) -> ByteImages:
    """A random crop of a frost texture is laid over the dimmed image.

    The textures are procedural (`frost_textures`): the photographs behind the official CIFAR-10-C are
    not ours to distribute, so this corruption has the official recipe and strength but not its pixels.
    """
    height, width = images.shape[1:3]
    textures = frost_textures()
    bounds = np.array([len(textures), textures.shape[1] - height, textures.shape[2] - width])
    crops = np.stack(
        [textures[which, top : top + height, left : left + width] for which, top, left in draws.integers(bounds)]
    )
    return levels(kept * unit(images) + frosted * unit(crops))


def snow(
    images: ByteImages,
    draws: Draws,
    mean: float,
    spread: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    kept: float,
) -> ByteImages:
    """Flakes blown in one direction, and their half-turn, over an image that is whitened."""
    height, width = images.shape[1:3]
    noise = mean + spread * draws.normal((height, width))
    zoomed = clipped_zoom(height, zoom) @ noise @ clipped_zoom(width, zoom).T
    flakes = levels(np.where(zoomed < threshold, np.float32(0), zoomed))[..., None]
    blown = unit(motion_blurred(flakes, np.deg2rad(draws.uniform((), -135, -45)), radius, sigma))

    clean = unit(images)
    whitened = kept * clean + (1 - kept) * np.maximum(clean, (clean @ _LUMA)[..., None] * 1.5 + 0.5)
    return levels(whitened + blown + blown[:, ::-1, ::-1])


def spatter(
    images: ByteImages,
    draws: Draws,
    mean: float,
    spread: float,
    sigma: float,
    threshold: float,
    strength: float,
    is_mud: bool,
) -> ByteImages:
    """Drops on the lens: water at low severities, mud at high ones. `strength` is the opacity of water and the softness
    of mud."""
    liquid = gaussian(mean + spread * draws.normal(images.shape[1:3]), sigma)
    if is_mud:
        soft = gaussian((liquid > threshold).astype(np.float32), strength)
        opacity = np.where(soft < 0.8, np.float32(0), soft)[..., None]
        return levels(unit(images) * (1 - opacity) + _MUD * opacity)
    drops = levels(np.where(liquid < threshold, np.float32(0), liquid))
    sheen = np.stack([_wet_sheen(drop) for drop in drops])[..., None]
    return levels(unit(images) + sheen * (np.float32(strength) * _WATER))


def _wet_sheen(liquid: ByteImages) -> Unit:
    """How brightly water of the given depth `[H, W]` shines: embossed drops, at most 1."""
    distance = cv2.distanceTransform(255 - cv2.Canny(liquid, 50, 150), cv2.DIST_L2, 5)
    relief = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    embossed = cv2.blur(cv2.filter2D(relief, cv2.CV_8U, _EMBOSS), (3, 3))
    sheen = liquid.astype(np.float32) * embossed
    # A dry image stays as it is; the reference divides by zero here.
    return np.asarray(sheen / max(sheen.max(), 1), dtype=np.float32)


def frost_textures() -> ByteImages:
    """Five frosted panes, `[5, 200, 200, 3]`, the same on every call. Each is made at the size of a photograph, from
    feathers of ice (branching strokes) on a pane of ridged fractal noise with thinner and thicker places, and is then
    scaled by 0.2 like the official photographs."""
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
    return np.stack([np.concatenate([stem[:-1], stem, stem]), ends], axis=1)


def _directions(angles: Points) -> Points:
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)
