"""What sensors, cameras and codecs do: noise, contrast, brightness, saturation, JPEG, pixels, elastic deformation."""

from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedade.data.corruptions.pixels import ByteImages, Draws, Unit, cv2, gathered, gaussian, levels, unit


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


_DEPTH_OF_RED = np.array([0, 1, 1], dtype=np.float32)


def contrast(images: ByteImages, _draws: Draws, factor: float) -> ByteImages:
    """Each channel is drawn towards its mean over the image."""
    clean = unit(images)
    means = clean.mean(axis=(1, 2), keepdims=True)
    return levels((clean - means) * factor + means)


def brightness(images: ByteImages, _draws: Draws, added: float) -> ByteImages:
    """HSV value raised; hue and saturation stay, so the channels are scaled by one factor."""
    clean = unit(images)
    value = clean.max(axis=-1, keepdims=True)
    raised = np.minimum(value + added, 1)
    is_black = value == 0
    return levels(np.where(is_black, raised, clean * (raised / np.where(is_black, 1, value))))


def saturate(images: ByteImages, _draws: Draws, factor: float, added: float) -> ByteImages:
    """HSV saturation scaled and raised; hue and value stay.

    A channel lies below the value by value * saturation * depth, where depth (0 to 1) is set by the
    hue alone. The hue of a grey pixel is 0, red, so a raised saturation turns grey reddish.
    """
    clean = unit(images)
    value = clean.max(axis=-1, keepdims=True)
    chroma = value - clean.min(axis=-1, keepdims=True)
    is_grey = chroma == 0
    depth = np.where(is_grey, _DEPTH_OF_RED, (value - clean) / np.where(is_grey, 1, chroma))
    saturation = chroma / np.where(value == 0, 1, value)
    return levels(value * (1 - np.clip(saturation * factor + added, 0, 1) * depth))


def jpeg_compression(images: ByteImages, _draws: Draws, quality: int) -> ByteImages:
    """Saved as JPEG and read back."""
    return np.stack([_through_jpeg(image, quality) for image in images])


def _through_jpeg(image: ByteImages, quality: int) -> ByteImages:
    encoded = BytesIO()
    Image.fromarray(image).save(encoded, "JPEG", quality=quality)
    return np.asarray(Image.open(encoded))


def pixelate(images: ByteImages, _draws: Draws, scale: float) -> ByteImages:
    """Shrunk and enlarged again with a box filter."""
    height, width = images.shape[1:3]
    small, full = (int(width * scale), int(height * scale)), (width, height)
    box = Image.Resampling.BOX
    return np.stack([np.asarray(Image.fromarray(image).resize(small, box).resize(full, box)) for image in images])


def elastic_transform(images: ByteImages, draws: Draws, stretch: float, smoothness: float, affine: float) -> ByteImages:
    """A random affine map, then a smooth random displacement; constants are shares of the side."""
    height, width = images.shape[1:3]
    side = min(height, width)
    corner_shifts = draws.uniform((3, 2), -affine * side, affine * side)
    warped = np.stack([_affine(image, shifts) for image, shifts in zip(unit(images), corner_shifts, strict=True)])
    down, right = (
        stretch * side * gaussian(draws.uniform((height, width), -1, 1), smoothness * side, "reflect", truncate=3)
        for _ in range(2)
    )
    return levels(displaced(warped, down, right))


def _affine(image: Unit, corner_shifts: Unit) -> Unit:
    """The affine map that moves three corners of the middle square by the given shifts `[3, 2]`."""
    height, width = image.shape[:2]
    middle, reach = np.array([height // 2, width // 2], dtype=np.float32), min(height, width) // 3
    corners = middle + reach * np.array([[1, 1], [1, -1], [-1, -1]], dtype=np.float32)
    matrix = cv2.getAffineTransform(corners, corners + corner_shifts)
    return np.asarray(cv2.warpAffine(image, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101))


def displaced(images: Unit, down: Unit, right: Unit) -> Unit:
    """Each pixel reads, by linear interpolation, the place `down`, `right` of it (`[N, H, W]`). Borders are mirrored
    with the edge repeated."""
    height, width = images.shape[1:3]
    rows, columns = np.arange(height)[:, None] + down, np.arange(width) + right
    top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    below, right_of = ((place - whole).astype(np.float32)[..., None] for place, whole in ((rows, top), (columns, left)))
    first_row, second_row = (_mirrored(row, height) * width for row in (top, top + 1))
    first_column, second_column = (_mirrored(column, width) for column in (left, left + 1))

    def between_columns(row: NDArray[np.int64]) -> Unit:
        return _between(gathered(images, row + first_column), gathered(images, row + second_column), right_of)

    return _between(between_columns(first_row), between_columns(second_row), below)


def _between(start: Unit, end: Unit, share: Unit) -> Unit:
    return np.add(start, share * (end - start), dtype=np.float32)


def _mirrored(index: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Indices outside 0 .. size - 1 folded back: -1 is 0, size is size - 1."""
    folded = index % (2 * size)
    return np.minimum(folded, 2 * size - 1 - folded)
