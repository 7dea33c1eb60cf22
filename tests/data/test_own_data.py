"""The user's own images, arrays and PyTorch datasets, with no code beyond naming them."""

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tiny_layouts import some_images, write_image
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, TensorDataset

from fedade.core.errors import FedadeError
from fedade.data.dataset import held_out_rows
from fedade.data.registry import load
from fedade.data.torch_dataset import from_torch


def image_folder(root: Path, parts: tuple[str, ...] = ("train/", "test/"), per_class: int = 5) -> Path:
    for part in parts:
        for shade, name in ((10, "ants"), (200, "bees")):
            for number in range(per_class):
                write_image(root / f"{part}{name}/{number}.png", np.full((3, 8, 8), shade + number, np.uint8))
    return root


def test_a_folder_per_class_is_a_dataset(tmp_path: Path) -> None:
    dataset = load(f"folder:{image_folder(tmp_path)}")
    assert dataset.class_names == ("ants", "bees")
    assert dataset.input_shape == (3, 8, 8)
    assert len(dataset.train) == len(dataset.test) == 10
    np.testing.assert_array_equal(dataset.train.labels, [0] * 5 + [1] * 5)
    np.testing.assert_array_equal(dataset.train.inputs[:, 0, 0, 0], [10, 11, 12, 13, 14, 200, 201, 202, 203, 204])
    assert dataset.partial is None


@pytest.mark.parametrize("parts", [("train/",), ("",)])
def test_without_a_test_part_every_fifth_image_of_a_class_is_held_out(tmp_path: Path, parts: tuple[str, ...]) -> None:
    dataset = load(f"folder:{image_folder(tmp_path / 'mine', parts)}")
    np.testing.assert_array_equal(dataset.test.inputs[:, 0, 0, 0], [14, 204])
    np.testing.assert_array_equal(dataset.train.inputs[:, 0, 0, 0], [10, 11, 12, 13, 200, 201, 202, 203])


def test_images_of_differing_sizes_are_named_or_resized(tmp_path: Path) -> None:
    write_image(image_folder(tmp_path) / "train/bees/wide.png", np.zeros((3, 8, 12), np.uint8))
    with pytest.raises(FedadeError, match=r"wide\.png is 12x8 pixels, the first 8x8; .*\?size=PIXELS"):
        load(f"folder:{tmp_path}")
    assert load(f"folder:{tmp_path}?size=16").input_shape == (3, 16, 16)
    with pytest.raises(FedadeError, match=r"unknown option 'size=0'"):
        load(f"folder:{tmp_path}?size=0")


def test_folders_without_images_or_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedadeError, match=r"nowhere is not a folder"):
        load(f"folder:{tmp_path / 'nowhere'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FedadeError, match=r"empty holds no images"):
        load(f"folder:{tmp_path / 'empty'}")
    image_folder(tmp_path / "mine")
    (tmp_path / "mine/train/cats").mkdir()
    with pytest.raises(FedadeError, match=r"no training example of class 'cats'"):
        load(f"folder:{tmp_path / 'mine'}")
    (tmp_path / "mine/train/cats").rmdir()
    (tmp_path / "mine/test/dogs").mkdir()
    with pytest.raises(FedadeError, match=r"class 'dogs' has no training images"):
        load(f"folder:{tmp_path / 'mine'}")


def test_arrays_stay_on_disk_and_floats_become_float32(tmp_path: Path) -> None:
    images, labels = some_images(10, side=8), np.tile([0, 1], 5)
    for part in ("train", "test"):
        np.save(tmp_path / f"{part}_inputs.npy", images)
        np.save(tmp_path / f"{part}_labels.npy", labels)
    dataset = load(f"arrays:{tmp_path}")
    assert isinstance(dataset.train.inputs, np.memmap)
    np.testing.assert_array_equal(dataset.train.inputs, images)
    assert dataset.class_names == ("0", "1")
    np.save(tmp_path / "train_inputs.npy", images.reshape(10, -1) / 255)
    np.save(tmp_path / "test_inputs.npy", images.reshape(10, -1) / 255)
    assert load(f"arrays:{tmp_path}").train.inputs.dtype == np.float32


def test_arrays_with_their_channels_last_are_turned(tmp_path: Path) -> None:
    images, labels = some_images(10, side=8), np.tile([0, 1], 5)
    np.savez(tmp_path / "train.npz", inputs=images.transpose(0, 2, 3, 1), labels=labels)
    dataset = load(f"arrays:{tmp_path}")
    np.testing.assert_array_equal(dataset.train.inputs, images[:8])
    np.testing.assert_array_equal(dataset.test.inputs, images[8:])


@pytest.mark.parametrize(
    ("inputs", "shape", "dtype"),
    [
        (np.zeros((10, 8, 6), np.uint8), (1, 8, 6), np.uint8),
        (np.zeros((10, 8, 6)), (1, 8, 6), np.float32),
        (np.full((10, 4), 1e9), (4,), np.float32),
        (np.zeros((10, 4), np.int32), (4,), np.int64),
    ],
    ids=["grey bytes", "grey floats", "table", "tokens"],
)
def test_grey_images_tables_and_tokens_are_read_from_one_file(tmp_path: Path, inputs, shape, dtype) -> None:
    np.savez(tmp_path / "mine.npz", inputs=inputs, labels=np.arange(10) % 2)
    dataset = load(f"arrays:{tmp_path / 'mine.npz'}")
    assert dataset.input_shape == shape
    assert dataset.train.inputs.dtype == dtype
    assert dataset.one_part
    assert len(dataset.whole) == 10


@pytest.mark.parametrize(
    ("inputs", "labels", "complaint"),
    [
        (np.zeros((10, 4)), np.zeros(9, int), r"10 inputs but labels of shape \[9\]"),
        (np.zeros((10, 4)), np.zeros(10), r"labels are float64; expected whole numbers"),
        (np.zeros((10, 4)), np.full(10, -1), r"label -1 in row 0 is out of range"),
        (np.zeros((10, 4)), np.full(10, 2), r"no training example of class '0', '1'"),
        (np.zeros((10, 4, 4), int), np.zeros(10, int), r"inputs are int64; expected uint8 images or floating"),
        (np.zeros((10, 4)), np.zeros(10, int), r"every example is of class '0'; bring examples of two or more classes"),
        (np.full((10, 4, 4), 1e6), np.arange(10) % 2, r"row 0 has a pixel of 1e\+06; scale images to 0 to 1"),
        (np.zeros(10), np.zeros(10, int), r"inputs have shape \[10\]"),
        (np.zeros((0, 4)), np.zeros(0, int), r"inputs have shape \[0, 4\]"),
        (np.array([[0.0], [np.nan]] * 5), np.zeros(10, int), r"row 1 holds a value that is not finite"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, inputs: np.ndarray, labels: np.ndarray, complaint: str) -> None:
    np.save(tmp_path / "inputs.npy", inputs)
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(FedadeError, match=complaint):
        load(f"arrays:{tmp_path}")


def test_missing_or_damaged_arrays_are_named(tmp_path: Path) -> None:
    with pytest.raises(FedadeError, match=r"none\.npz does not exist; expected an \.npz file"):
        load(f"arrays:{tmp_path / 'none.npz'}")
    for name in ("table.csv", "inputs.npy", "renamed.npz"):
        with (tmp_path / name).open("wb") as file:
            np.save(file, np.zeros((10, 4)))
        with pytest.raises(FedadeError, match=rf"{name} is no \.npz file; write one with numpy\.savez"):
            load(f"arrays:{tmp_path / name}")
        (tmp_path / name).unlink()
    with pytest.raises(FedadeError, match=r"holds no arrays; expected an \.npz file, or a folder with train\.npz"):
        load(f"arrays:{tmp_path}")
    np.save(tmp_path / "inputs.npy", np.zeros((10, 4)))
    with pytest.raises(FedadeError, match=r"labels\.npy is missing beside inputs\.npy"):
        load(f"arrays:{tmp_path}")
    (tmp_path / "inputs.npy").write_bytes((tmp_path / "inputs.npy").read_bytes()[:-8])
    np.save(tmp_path / "labels.npy", np.zeros(10, int))
    with pytest.raises(FedadeError, match=r"inputs\.npy is truncated"):
        load(f"arrays:{tmp_path}")
    np.savez(tmp_path / "train.npz", pictures=np.zeros((10, 4)))
    with pytest.raises(FedadeError, match=r"train\.npz holds pictures; expected arrays 'inputs' and 'labels'"):
        load(f"arrays:{tmp_path}")
    (tmp_path / "train.npz").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(FedadeError, match=r"train\.npz is truncated"):
        load(f"arrays:{tmp_path}")
    np.savez_compressed(tmp_path / "train.npz", inputs=np.zeros((10, 4)), labels=np.zeros(10, int))
    content = bytearray((tmp_path / "train.npz").read_bytes())
    content[60:80] = b"\xff" * 20
    (tmp_path / "train.npz").write_bytes(content)
    with pytest.raises(FedadeError, match=r"train\.npz is truncated or damaged \(Error -3 while decompressing"):
        load(f"arrays:{tmp_path}")


def test_arrays_of_objects_are_no_damaged_files(tmp_path: Path) -> None:
    inputs, labels = np.array([[1, 2.5], [3, None]] * 5, dtype=object), np.arange(10) % 2
    np.savez(tmp_path / "mine.npz", inputs=inputs, labels=labels)
    with pytest.raises(FedadeError, match=r"mine\.npz: inputs are Python objects, .*; store numbers"):
        load(f"arrays:{tmp_path / 'mine.npz'}")
    np.save(tmp_path / "inputs.npy", inputs)
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(FedadeError, match=r"inputs\.npy: values are Python objects"):
        load(f"arrays:{tmp_path}")


def test_a_text_file_with_a_name_of_arrays_is_read_without_advice_to_unpickle(tmp_path: Path) -> None:
    (tmp_path / "inputs.npy").write_text("a,b\n1,2\n")
    np.save(tmp_path / "labels.npy", np.zeros(10, int))
    with pytest.raises(FedadeError, match=r"inputs\.npy is truncated or damaged \(it holds no array;"):
        load(f"arrays:{tmp_path}")


class Pictures(TorchDataset[tuple[Image.Image, int]]):
    """As torchvision's datasets: pictures, labels and a list of classes."""

    classes = ("red", "blue")

    def __len__(self) -> int:
        return 10

    def __getitem__(self, row: int) -> tuple[Image.Image, int]:
        return Image.new("RGB", (8, 6), (row, 0, 0)), row % 2


def test_a_torch_dataset_of_pictures_becomes_bytes_with_its_class_names() -> None:
    dataset = from_torch(Pictures(), Pictures())
    assert dataset.class_names == ("red", "blue")
    assert dataset.train.inputs.dtype == np.uint8
    assert dataset.input_shape == (3, 6, 8)
    np.testing.assert_array_equal(dataset.train.inputs[:, 0, 0, 0], range(10))


def test_a_torch_dataset_of_tensors_stays_float32_and_is_held_out() -> None:
    inputs, labels = torch.rand(20, 5, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    dataset = from_torch(TensorDataset(inputs.double(), labels))
    assert dataset.train.inputs.dtype == np.float32
    assert (len(dataset.train), len(dataset.test)) == (16, 4)
    np.testing.assert_array_equal(dataset.test.inputs, inputs[[8, 9, 18, 19]])


class Endless(IterableDataset[int]):
    """A dataset without a length."""

    def __iter__(self) -> Iterator[int]:
        return iter(())


@pytest.mark.parametrize(
    ("dataset", "complaint"),
    [
        (Endless(), "has no length"),
        (TensorDataset(torch.zeros(0, 2), torch.zeros(0)), "is empty"),
        (TensorDataset(torch.zeros(5, 2)), r"item 0 is a tuple; expected an \(input, label\) pair"),
        (TensorDataset(torch.zeros(5, 2), torch.zeros(5)), "label of item 0 is .*expected one whole number"),
        (
            TensorDataset(torch.zeros(5, 2), torch.ones(5, dtype=torch.int64)),
            "no training example of class '0'",
        ),
    ],
)
def test_torch_datasets_that_cannot_be_used_are_refused(dataset: TorchDataset[object], complaint: str) -> None:
    with pytest.raises(FedadeError, match=complaint):
        from_torch(dataset)


def test_a_torch_dataset_is_named_by_its_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("someones_data")
    module.both = lambda: (Pictures(), Pictures())  # type: ignore[attr-defined]
    module.one = Pictures()  # type: ignore[attr-defined]
    module.kind = Pictures  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "someones_data", module)
    assert len(load("torch:someones_data:both").test) == 10
    assert len(load("torch:someones_data:one").test) == 2
    assert load("torch:someones_data:kind").name == "torch:someones_data:kind"
    for wrong in ("torch:someones_data:none", "torch:no_such_module:x", "torch:"):
        with pytest.raises(FedadeError, match=r"cannot be imported .*torch:package\.module:attribute"):
            load(wrong)


@given(st.lists(st.integers(0, 3), min_size=17))
def test_a_fifth_of_every_class_is_held_out(labels: list[int]) -> None:
    held_out = held_out_rows(np.array(labels))
    for label in set(labels):
        assert held_out[np.array(labels) == label].sum() == labels.count(label) // 5
