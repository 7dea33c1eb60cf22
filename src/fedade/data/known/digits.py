"""scikit-learn's digits with a noisy sensor: real data that needs no download.

1,797 handwritten digits of 8x8 pixels. Clean digits are so easy that a source model leaves little to any
adaptation; with a fixed level of sensor noise there is something to adapt.
"""

import numpy as np

from fedade.core.importing import OptionalModule
from fedade.core.seeds import Seeds
from fedade.data.dataset import Dataset, Labelled
from fedade.data.specs import BundledSpec

bundled = OptionalModule("sklearn.datasets")  # takes a second to import, which every message on Flower would pay
SENSOR_NOISE = 0.35
"""Standard deviation of the noise, on a scale where black is 0 and white is 1."""
NUM_TRAIN = 700
"""Images on the training side; the others are streamed. Fixed, whatever the seed of a run."""


def digits() -> Dataset:
    images, labels = bundled.load_digits(return_X_y=True)
    seeds = Seeds(0)
    order = seeds.generator("digits-order").permutation(len(labels))
    noise = seeds.generator("digits-noise").normal(0, SENSOR_NOISE, images.shape)
    # The sensor's range is wider than the page's, so that noise is not clipped away at black and white.
    seen = np.clip((images / 16 + noise + 0.75) / 2.5, 0, 1)
    pixels = np.round(seen * 255).astype(np.uint8).reshape(-1, 1, 8, 8)[order]
    labels = labels.astype(np.int64)[order]
    train, test = (Labelled(pixels[side], labels[side]) for side in (slice(NUM_TRAIN), slice(NUM_TRAIN, None)))
    return Dataset("digits", tuple(map(str, range(10))), train, test)


DIGITS = BundledSpec(name="digits", num_classes=10, images=1797, make=digits, origin="installed with scikit-learn")
