"""Pixel noise: gaussian, shot, impulse and speckle."""

import numpy as np

from fedade.data.corruptions.pixels import ByteImages, Draws, levels, unit


def gaussian_noise(images: ByteImages, draws: Draws, scale: float) -> ByteImages:
    """Additive noise, as in poor light."""
    return levels(unit(images) + scale * draws.normal(images.shape[1:]))


def shot_noise(images: ByteImages, draws: Draws, photons: float) -> ByteImages:
    """Poisson noise of a sensor that counts `photons` at full brightness."""
    counts = draws.poisson(images.astype(np.float64) / 255 * photons)
    return levels((counts / photons).astype(np.float32))


def impulse_noise(images: ByteImages, draws: Draws, amount: float) -> ByteImages:
    """Salt and pepper: a share `amount` of all channel values becomes 0 or 255, evenly."""
    chance = draws.uniform(images.shape[1:])
    # One draw decides both: below amount / 2 is pepper, the rest up to amount is salt.
    pepper, struck = chance < amount / 2, chance < amount
    return np.where(struck, np.where(pepper, np.uint8(0), np.uint8(255)), images)


def speckle_noise(images: ByteImages, draws: Draws, scale: float) -> ByteImages:
    """Multiplicative noise: bright pixels suffer more."""
    clean = unit(images)
    return levels(clean + clean * scale * draws.normal(images.shape[1:]))
