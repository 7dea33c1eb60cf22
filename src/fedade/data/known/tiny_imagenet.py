"""Tiny ImageNet (Stanford CS231n, 2015)."""

from fedade.data.download import Archive, published_files
from fedade.data.locate import DiskLayout
from fedade.data.readers.images import TinyFolder
from fedade.data.readers.parquet import ParquetShards
from fedade.data.specs import ImageSpec

_FILES = published_files("""
39548430 sha256:8d40084be8017c951da2241e1ebbef95eaa0741d8b180b6458cbb5fd4b26552b train-00000-of-00005.parquet
19707006 sha256:b9dc247a9e996fd7d7b0c759c1198c3ded4d1c0743a18c9fdf140e424e679ea2 valid-00000-of-00001.parquet
""")
_ARCHIVE = Archive(
    "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
    "tiny-imagenet-200",
)
_ON_THE_HUB = DiskLayout(
    ("tiny-imagenet/data", "tiny-imagenet", "datasets--zh-plus--tiny-imagenet/snapshots/*/data", "."),
    "tiny-imagenet/data/train-*.parquet and valid-*.parquet",
    ParquetShards(image="image", label="label", num_classes=200, test="valid"),
)
_UNPACKED = DiskLayout(
    ("tiny-imagenet-200", "tiny-imagenet/tiny-imagenet-200", "."), "tiny-imagenet-200/", TinyFolder(num_classes=200)
)
TINY_IMAGENET = ImageSpec("tiny-imagenet", 200, 100_000, 10_000, (_ON_THE_HUB, _UNPACKED), _ARCHIVE, _FILES)
