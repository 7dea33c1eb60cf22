"""A picture of every corruption at every severity."""

import numpy as np
from PIL import Image, ImageDraw

from fedade.data.corruptions.corrupting import corrupt
from fedade.data.corruptions.pixels import Pixels
from fedade.data.corruptions.registry import CORRUPTIONS, MAX_SEVERITY

_LABEL_WIDTH = 120
_HEADER_HEIGHT = 16


def contact_sheet(images: Pixels, enlarged: int = 2, seed: int = 0) -> Pixels:
    """One row per corruption, columns clean and severity 1 to 5, labelled: `[height, width, 3]`.

    Rows take the images `[N, H, W, 3]` in turn, so one image is enough and several show more.
    """
    rows = [_row(images[number % len(images)], name, seed) for number, name in enumerate(CORRUPTIONS)]
    tiles = np.concatenate(rows).repeat(enlarged, axis=0).repeat(enlarged, axis=1)
    return _labelled(tiles)


def _row(image: Pixels, name: str, seed: int) -> Pixels:
    severities = range(MAX_SEVERITY + 1)
    return np.concatenate([corrupt(image[None], name, severity, seed)[0] for severity in severities], axis=1)


def _labelled(tiles: Pixels) -> Pixels:
    tile_height, tile_width = len(tiles) // len(CORRUPTIONS), tiles.shape[1] // (MAX_SEVERITY + 1)
    sheet = Image.new("RGB", (_LABEL_WIDTH + tiles.shape[1], _HEADER_HEIGHT + len(tiles)), "white")
    sheet.paste(Image.fromarray(tiles), (_LABEL_WIDTH, _HEADER_HEIGHT))
    pen = ImageDraw.Draw(sheet)
    for column in range(MAX_SEVERITY + 1):
        centre = _LABEL_WIDTH + (column + 0.5) * tile_width, _HEADER_HEIGHT / 2
        pen.text(centre, str(column) if column else "clean", fill="black", anchor="mm")
    for row, name in enumerate(CORRUPTIONS):
        pen.text((4, _HEADER_HEIGHT + (row + 0.5) * tile_height), name, fill="black", anchor="lm")
    return np.asarray(sheet)
