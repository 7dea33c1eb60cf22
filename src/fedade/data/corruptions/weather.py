"""Weather and dirt: fog, frost, snow and spatter."""

import numpy as np

from fedade.data.corruptions.blur import clipped_zoom, motion_blurred
from fedade.data.corruptions.draws import Draws
from fedade.data.corruptions.frost_textures import frost_textures
from fedade.data.corruptions.pixels import ByteImages, Unit, cv2, gaussian, levels, unit

_WATER = unit(np.array([175, 238, 238], dtype=np.uint8))
_MUD = unit(np.array([63, 42, 20], dtype=np.uint8))
_EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], dtype=np.float32)
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)


def fog(images: ByteImages, draws: Draws, thickness: float, decay: float) -> ByteImages:
    """A bank of plasma is added, and the sum dimmed back to the image's own maximum."""
    height, width = images.shape[1:3]
    clean = unit(images)
    brightest = clean.max(axis=(1, 2, 3), keepdims=True)
    bank = plasma(draws, max(height, width), decay)[:, :height, :width, None]
    return levels((clean + thickness * bank) * brightest / (brightest + thickness))


def plasma(draws: Draws, side: int, decay: float) -> Unit:
    """Height maps in [0, 1] by the diamond-square algorithm, `[N, S, S]`, S a power of two >= side.

    As in the reference the wobble of a step enters twice, as range and as factor, so that it falls
    by decay squared each time the step is halved; the map wraps around.
    """
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
        heights[:, ::step, half::step] = wobbled_mean(
            centres + np.roll(centres, 1, axis=1) + corners + np.roll(corners, -1, axis=2)
        )
        heights[:, half::step, ::step] = wobbled_mean(
            centres + np.roll(centres, 1, axis=2) + corners + np.roll(corners, -1, axis=1)
        )
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
    angles = np.deg2rad(draws.uniform((), -135, -45))
    blown = unit(motion_blurred(flakes, angles, radius, sigma))

    clean = unit(images)
    grey = (clean @ _LUMA)[..., None]
    whitened = kept * clean + (1 - kept) * np.maximum(clean, grey * 1.5 + 0.5)
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
    """Drops on the lens: water at low severities, mud at high ones.

    `strength` is the opacity of water and the softness of mud.
    """
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
