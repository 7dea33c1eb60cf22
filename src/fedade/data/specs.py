"""The datasets known by name: how large they are, where they may lie, and where they are published."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedade.data import published
from fedade.data.checksums import Published
from fedade.data.dataset import Dataset
from fedade.data.digits import digits
from fedade.data.download import Archive
from fedade.data.lama import NUM_FACTS, NUM_RELATIONS
from fedade.data.locate import Layout
from fedade.data.readers.cifar_pickle import CifarBatches
from fedade.data.readers.parquet import ParquetShards
from fedade.data.readers.tiny_folder import TinyFolder


@dataclass(frozen=True)
class DatasetSpec:
    """A dataset on disk: its true size, the layouts it is read from, its public archive and checksums."""

    num_classes: int
    train_images: int
    test_images: int
    layouts: tuple[Layout, ...]
    archive: Archive
    published: Mapping[str, Published]


@dataclass(frozen=True)
class CorruptedSpec:
    """A covariate benchmark: a clean dataset, and where the arrays of its corrupted test images may lie."""

    clean: str
    folders: tuple[str, ...]
    archive: Archive


@dataclass(frozen=True)
class TextSpec:
    """A dataset of texts: its true size in facts, where it may lie, and where it is published.

    It is not fetched by the package: the authors publish no checksum to hold a download against.
    """

    num_classes: int
    facts: int
    folders: tuple[str, ...]
    holds: str
    """What such a folder holds, in words for a message."""
    url: str


@dataclass(frozen=True)
class BundledSpec:
    """A dataset that is installed with the package."""

    load: Callable[[], Dataset]
    origin: str


CIFAR10 = DatasetSpec(
    num_classes=10,
    train_images=50_000,
    test_images=10_000,
    layouts=(
        Layout(
            folders=(
                "cifar10/plain_text",
                "plain_text",
                "cifar10",
                "datasets--uoft-cs--cifar10/snapshots/*/plain_text",
                ".",
            ),
            holds="cifar10/plain_text/train-*.parquet and test-*.parquet",
            reader=ParquetShards(image="img", label="label", num_classes=10),
        ),
        Layout(
            folders=("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "."),
            holds="cifar-10-batches-py/",
            reader=CifarBatches(
                train=tuple(f"data_batch_{number}" for number in range(1, 6)),
                test="test_batch",
                labels="labels",
                meta="batches.meta",
                names="label_names",
                num_classes=10,
            ),
        ),
    ),
    archive=Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        "cifar-10-batches-py",
    ),
    published=published.CIFAR10,
)

CIFAR100 = DatasetSpec(
    num_classes=100,
    train_images=50_000,
    test_images=10_000,
    layouts=(
        Layout(
            folders=(
                "cifar100/cifar100",
                "cifar100",
                "datasets--uoft-cs--cifar100/snapshots/*/cifar100",
                ".",
            ),
            holds="cifar100/train-*.parquet and test-*.parquet",
            reader=ParquetShards(image="img", label="fine_label", num_classes=100),
        ),
        Layout(
            folders=("cifar-100-python", "cifar100/cifar-100-python", "."),
            holds="cifar-100-python/",
            reader=CifarBatches(
                train=("train",),
                test="test",
                labels="fine_labels",
                meta="meta",
                names="fine_label_names",
                num_classes=100,
            ),
        ),
    ),
    archive=Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        "cifar-100-python",
    ),
    published=published.CIFAR100,
)

TINY_IMAGENET = DatasetSpec(
    num_classes=200,
    train_images=100_000,
    test_images=10_000,
    layouts=(
        Layout(
            folders=(
                "tiny-imagenet/data",
                "tiny-imagenet",
                "datasets--zh-plus--tiny-imagenet/snapshots/*/data",
                ".",
            ),
            holds="tiny-imagenet/data/train-*.parquet and valid-*.parquet",
            reader=ParquetShards(image="image", label="label", num_classes=200, test="valid"),
        ),
        Layout(
            folders=("tiny-imagenet-200", "tiny-imagenet/tiny-imagenet-200", "."),
            holds="tiny-imagenet-200/",
            reader=TinyFolder(num_classes=200),
        ),
    ),
    archive=Archive(
        "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
        "tiny-imagenet-200",
    ),
    published=published.TINY_IMAGENET,
)

LAMA_TREX = TextSpec(
    num_classes=NUM_RELATIONS,
    facts=NUM_FACTS,
    folders=("lama_trex", "lama-trex", "LAMA/data", "LAMA", "lama", "data", "."),
    holds="TREx/P*.jsonl and relations.jsonl",
    url="https://dl.fbaipublicfiles.com/LAMA/data.zip",
)

Spec = DatasetSpec | CorruptedSpec | TextSpec | BundledSpec

DATASETS: Mapping[str, Spec] = {
    "digits": BundledSpec(digits, "installed with scikit-learn"),
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "tiny-imagenet": TINY_IMAGENET,
    "cifar10-c": CorruptedSpec(
        "cifar10",
        ("CIFAR-10-C", "cifar10-c"),
        Archive(
            "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
            "md5:56bf5dcef84df0e2308c6dcbcbbd8499",
            "CIFAR-10-C",
        ),
    ),
    "cifar100-c": CorruptedSpec(
        "cifar100",
        ("CIFAR-100-C", "cifar100-c"),
        Archive(
            "https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",
            "md5:11f0ed0f1191edbf9fa23466ae6021d3",
            "CIFAR-100-C",
        ),
    ),
    "lama-trex": LAMA_TREX,
}
"""Every dataset by its name; the corrupted ones are generated where their arrays are not on disk."""
