"""Every layout gives the same kind of dataset, and says clearly what is wrong with a bad one."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from tiny_layouts import (
    CIFAR10_NAMES,
    dump_batch,
    encoded,
    some_images,
    write_cifar10_batches,
    write_image,
    write_parquet,
)

from fedade.core.errors import FedadeError
from fedade.data.known.cifar import CIFAR10
from fedade.data.readers.cifar import read_corrupted_labels, read_corruption
from fedade.data.readers.images import ImageReading, TinyFolder, Undecoded
from fedade.data.readers.parquet import ParquetShards

CIFAR10_PARQUET = ParquetShards(image="img", label="label", num_classes=10)
CIFAR10_BATCHES = CIFAR10.layouts[1].reader


def pixels(part: Undecoded) -> np.ndarray:
    out = np.empty((len(part.labels), *part.shape), np.uint8)
    part.decode(out)
    return out


def parquet_of(folder: Path, contents: list[bytes], labels: list[int]) -> ImageReading:
    write_parquet(folder / "train-00000-of-00001.parquet", contents, labels)
    write_parquet(folder / "test-00000-of-00001.parquet", contents, labels)
    return CIFAR10_PARQUET.read(folder)


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_parquet_gives_the_exact_pixels_in_the_order_of_the_shards(tmp_path: Path, kind: str) -> None:
    images = some_images(20)
    contents = [encoded(image, kind) for image in images]
    write_parquet(tmp_path / "train-00001-of-00002.parquet", contents[10:], range(10))
    write_parquet(tmp_path / "train-00000-of-00002.parquet", contents[:10], range(10))
    write_parquet(tmp_path / "test-00000-of-00001.parquet", contents[:3], [7, 8, 9])
    reading = CIFAR10_PARQUET.read(tmp_path)
    assert reading.class_names == tuple(CIFAR10_NAMES)
    np.testing.assert_array_equal(pixels(reading.train), images)
    np.testing.assert_array_equal(reading.train.labels, [*range(10)] * 2)
    np.testing.assert_array_equal(pixels(reading.test), images[:3])
    np.testing.assert_array_equal(reading.test.labels, [7, 8, 9])


def test_a_grey_image_becomes_rgb(tmp_path: Path) -> None:
    grey = some_images(1)[0, 0]
    contents = [encoded(image) for image in some_images(9)] + [encoded(grey)]
    reading = parquet_of(tmp_path, contents, [*range(10)])
    np.testing.assert_array_equal(pixels(reading.train)[9], np.stack([grey] * 3))


def test_parquet_without_the_hubs_metadata_numbers_its_classes(tmp_path: Path) -> None:
    contents = [encoded(image) for image in some_images(10)]
    for part in ("train", "test"):
        write_parquet(tmp_path / f"{part}-0.parquet", contents, range(10), names=None)
    assert CIFAR10_PARQUET.read(tmp_path).class_names == tuple(map(str, range(10)))


def test_a_truncated_shard_is_named_with_its_checksum(tmp_path: Path) -> None:
    parquet_of(tmp_path, [encoded(image) for image in some_images(10)], [*range(10)])
    shard = tmp_path / "train-00000-of-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-50])
    with pytest.raises(FedadeError, match=r"train-00000-of-00001\.parquet is truncated .*sha256:[0-9a-f]{64}"):
        CIFAR10_PARQUET.read(tmp_path)


def test_an_image_that_cannot_be_decoded_is_named_by_its_row(tmp_path: Path) -> None:
    contents = [encoded(image) for image in some_images(9)] + [b"not an image"]
    reading = parquet_of(tmp_path, contents, [*range(10)])
    with pytest.raises(FedadeError, match=r"train-00000-of-00001\.parquet row 9 is not a readable image"):
        pixels(reading.train)


def test_an_image_of_another_size_is_named(tmp_path: Path) -> None:
    contents = [encoded(image) for image in some_images(9)] + [encoded(some_images(1, side=16)[0])]
    with pytest.raises(FedadeError, match=r"row 9 is 16x16 pixels, the first 32x32"):
        pixels(parquet_of(tmp_path, contents, [*range(10)]).train)


@pytest.mark.parametrize("label", [10, -1])
def test_a_label_out_of_range_is_named(tmp_path: Path, label: int) -> None:
    contents = [encoded(image) for image in some_images(11)]
    with pytest.raises(FedadeError, match=rf"label {label} in row 10 is out of range; 10 classes"):
        parquet_of(tmp_path, contents, [*range(10), label])


def test_a_class_without_images_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FedadeError, match=r"no training example of class 'class-8', 'class-9'"):
        parquet_of(tmp_path, [encoded(image) for image in some_images(8)], [*range(8)])


def test_training_shards_without_test_shards_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train-0.parquet", [encoded(image) for image in some_images(10)], range(10))
    with pytest.raises(FedadeError, match=r"no test-\*\.parquet"):
        CIFAR10_PARQUET.read(tmp_path)


def test_shards_of_another_dataset_are_not_recognised(tmp_path: Path) -> None:
    parquet_of(tmp_path, [encoded(image) for image in some_images(10)], [*range(10)])
    assert CIFAR10_PARQUET.recognises(tmp_path)
    assert not ParquetShards(image="img", label="fine_label", num_classes=100).recognises(tmp_path)
    assert not CIFAR10_PARQUET.recognises(tmp_path / "nowhere")


@pytest.mark.parametrize("protocol", range(1, 6))
def test_pickled_batches_give_the_exact_pixels_in_every_pickle_protocol(tmp_path: Path, protocol: int) -> None:
    images = write_cifar10_batches(tmp_path, batches=(1, 2), protocol=protocol)
    reading = CIFAR10_BATCHES.read(tmp_path / "cifar-10-batches-py")
    np.testing.assert_array_equal(pixels(reading.train), images)
    np.testing.assert_array_equal(reading.train.labels, [*range(10)] * 2)
    assert reading.class_names == tuple(CIFAR10_NAMES)


def test_a_truncated_batch_is_named(tmp_path: Path) -> None:
    write_cifar10_batches(tmp_path)
    batch = tmp_path / "cifar-10-batches-py/data_batch_2"
    batch.write_bytes(batch.read_bytes()[:1000])
    with pytest.raises(FedadeError, match=r"data_batch_2 is truncated or damaged"):
        CIFAR10_BATCHES.read(batch.parent)


@pytest.mark.parametrize(
    ("data", "labels", "complaint"),
    [
        (np.zeros((10, 3071), np.uint8), [*range(10)], r"shape \[10, 3071\] for 10 labels"),
        (np.zeros((10, 3072), np.uint8), [*range(9)], r"for 9 labels"),
        (np.zeros((10, 3072), np.float32), [*range(10)], r"not one of unsigned bytes"),
        (np.zeros((10, 3072), np.uint8), [*range(9), 10], r"label 10 in row 9 is out of range"),
        (np.zeros((10, 3072), np.uint8), ["cat"] * 10, r"labels are <U3"),
        ([1, 2, 3], [*range(10)], r"expected an array 'data'"),
    ],
)
def test_a_batch_of_wrong_content_is_refused(
    tmp_path: Path, data: object, labels: list[object], complaint: str
) -> None:
    write_cifar10_batches(tmp_path)
    batch = tmp_path / "cifar-10-batches-py/data_batch_1"
    batch.write_bytes(pickle.dumps({"data": data, "labels": labels}, 2))
    with pytest.raises(FedadeError, match=complaint):
        CIFAR10_BATCHES.read(batch.parent)


def test_batches_without_the_test_batch_are_refused(tmp_path: Path) -> None:
    write_cifar10_batches(tmp_path)
    (tmp_path / "cifar-10-batches-py/test_batch").unlink()
    with pytest.raises(FedadeError, match="no file 'test_batch'"):
        CIFAR10_BATCHES.read(tmp_path / "cifar-10-batches-py")


def test_batches_without_names_number_their_classes(tmp_path: Path) -> None:
    dump_batch(tmp_path / "data_batch_1", some_images(10), [*range(10)])
    dump_batch(tmp_path / "test_batch", some_images(10), [*range(10)])
    assert CIFAR10_BATCHES.read(tmp_path).class_names == tuple(map(str, range(10)))


def test_every_severity_of_a_published_corruption_is_its_own_rows(tmp_path: Path) -> None:
    images = some_images(20).transpose(0, 2, 3, 1)
    np.save(tmp_path / "fog.npy", images)
    np.save(tmp_path / "labels.npy", np.tile(np.arange(4), 5))
    for severity in range(1, 6):
        found = read_corruption(tmp_path, "fog", severity)
        np.testing.assert_array_equal(found, images[4 * (severity - 1) : 4 * severity])
        assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(read_corrupted_labels(tmp_path), np.arange(4))
    assert read_corruption(tmp_path, "snow", 1) is None


def test_an_unknown_corruption_or_severity_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedadeError, match="unknown corruption 'rain'; choose from brightness"):
        read_corruption(tmp_path, "rain", 1)
    with pytest.raises(FedadeError, match="severity 6 does not exist; choose from 1 to 5"):
        read_corruption(tmp_path, "fog", 6)


def test_damaged_or_misshapen_arrays_of_corruptions_are_named(tmp_path: Path) -> None:
    path = tmp_path / "fog.npy"
    np.save(path, some_images(20).transpose(0, 2, 3, 1))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FedadeError, match=r"fog\.npy is truncated"):
        read_corruption(tmp_path, "fog", 1)
    np.save(path, np.zeros((20, 32, 32, 3)))
    with pytest.raises(FedadeError, match=r"holds float64 of shape \[20, 32, 32, 3\]; expected uint8"):
        read_corruption(tmp_path, "fog", 1)
    np.save(path, np.array([object()]), allow_pickle=True)
    with pytest.raises(FedadeError, match=r"fog\.npy: values are Python objects"):
        read_corruption(tmp_path, "fog", 1)


def tiny_imagenet(folder: Path) -> Path:
    (folder / "val/images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("n02\nn01\n")
    for wnid, shade in (("n01", 10), ("n02", 200)):
        for number in range(2):
            write_image(folder / f"train/{wnid}/images/{wnid}_{number}.JPEG", np.full((3, 64, 64), shade, np.uint8))
        write_image(folder / f"val/images/val_{wnid}.JPEG", np.full((3, 64, 64), shade, np.uint8))
    (folder / "val/val_annotations.txt").write_text("val_n02.JPEG\tn02\t0\t0\nval_n01.JPEG\tn01\t0\t0\n")
    return folder


def test_tiny_imagenet_labels_are_positions_among_the_sorted_wnids(tmp_path: Path) -> None:
    reading = TinyFolder(num_classes=2).read(tiny_imagenet(tmp_path))
    assert reading.class_names == ("n01", "n02")
    np.testing.assert_array_equal(reading.train.labels, [0, 0, 1, 1])
    np.testing.assert_array_equal(reading.test.labels, [1, 0])
    np.testing.assert_allclose(pixels(reading.test).mean(axis=(1, 2, 3)), [200, 10], atol=1)


def test_bad_lists_of_tiny_imagenet_are_named(tmp_path: Path) -> None:
    folder = tiny_imagenet(tmp_path)
    with pytest.raises(FedadeError, match=r"wnids\.txt lists 2 classes; expected 200"):
        TinyFolder(num_classes=200).read(folder)
    (folder / "val/val_annotations.txt").write_text("val_n02.JPEG\tn99\n")
    with pytest.raises(FedadeError, match=r"val_annotations\.txt line 1: class 'n99'"):
        TinyFolder(num_classes=2).read(folder)
    (folder / "val/val_annotations.txt").unlink()
    with pytest.raises(FedadeError, match=r"val_annotations\.txt is missing"):
        TinyFolder(num_classes=2).read(folder)
