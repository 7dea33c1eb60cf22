"""Images with what corruptions act on: smooth backgrounds, sharp edges, fine texture."""

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Pixels = NDArray[np.uint8]


def natural_images(count: int = 24, side: int = 32) -> Pixels:
    """Smooth backgrounds with a sharp-edged object and fine texture, in colour."""
    generator = np.random.Generator(np.random.Philox(key=2024))
    rows, columns = np.mgrid[0:side, 0:side] / side
    images = np.empty((count, side, side, 3))
    for image in images:
        background, slope, colour = (
            generator.uniform(0.2, 0.8, 3),
            generator.normal(0, 0.3, (2, 3)),
            generator.random(3),
        )
        centre, radius = generator.uniform(0.35, 0.65, 2), generator.uniform(0.15, 0.35)
        inside = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < radius**2
        scenery = background + rows[..., None] * slope[0] + columns[..., None] * slope[1]
        texture = ndimage.gaussian_filter(generator.normal(0, 1, (side, side, 1)), (0.7, 0.7, 0))
        image[...] = np.where(inside[..., None], colour, scenery) + 0.1 * texture
    return (np.clip(images, 0, 1) * 255).astype(np.uint8)


IMAGES = natural_images()
