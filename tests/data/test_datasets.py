"""Datasets by name: where they are looked for, what is said about them, and what is refused."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_layouts import encoded, some_images, write_cifar10_batches, write_cifar10_parquet, write_parquet

from fedade.core.errors import FedadeError
from fedade.data import registry
from fedade.data.download import PublishedFile, file_digest
from fedade.data.known.cifar import CIFAR10
from fedade.data.registry import DATASETS, load, official_corruption, where


def test_a_partial_dataset_works_and_says_what_is_missing(tmp_path: Path) -> None:
    write_cifar10_parquet(tmp_path)
    assert load("cifar10", tmp_path).partial == "20 of 50,000 training images, 10 of 10,000 test images"
    assert CIFAR10.missing_images(30_000, 10_000) == "30,000 of 50,000 training images"
    assert CIFAR10.missing_images(50_000, 10_000) is None


def test_both_layouts_of_a_dataset_are_found(tmp_path: Path) -> None:
    write_cifar10_parquet(tmp_path / "hub")
    write_cifar10_batches(tmp_path / "torchvision")
    assert where("cifar10", tmp_path / "hub") == tmp_path / "hub/cifar10/plain_text"
    assert where("cifar10", tmp_path / "torchvision") == tmp_path / "torchvision/cifar-10-batches-py"
    assert where("cifar10", tmp_path / "torchvision/cifar-10-batches-py") is not None
    assert where("cifar100", tmp_path / "hub") is None


def test_the_search_goes_from_the_named_folder_to_the_users_cache(
    tmp_path: Path, own_search_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [
        own_search_path / "cache/datasets",
        Path.cwd() / "data",
        tmp_path / "variable",
        tmp_path / "named",
    ]
    for root in roots:
        write_cifar10_batches(root)
        if root.name == "variable":
            monkeypatch.setenv("FEDADE_DATA", str(root))
        named = root if root.name == "named" else None
        assert where("cifar10", named) == root / "cifar-10-batches-py"


def test_a_complete_copy_is_preferred_to_an_earlier_partial_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar10_parquet(tmp_path, per_class=1)
    write_cifar10_batches(tmp_path)
    assert where("cifar10", tmp_path) == tmp_path / "cifar10/plain_text"
    small = replace(CIFAR10, train_images=20, test_images=10)
    monkeypatch.setattr(registry, "DATASETS", {"cifar10": small})
    assert where("cifar10", tmp_path) == tmp_path / "cifar-10-batches-py"
    assert load("cifar10", tmp_path).partial is None


def test_a_damaged_copy_in_the_named_folder_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10_batches(tmp_path / "sound")
    write_cifar10_batches(tmp_path / "named")
    (tmp_path / "named/cifar-10-batches-py/data_batch_1").write_bytes(b"")
    monkeypatch.setenv("FEDADE_DATA", str(tmp_path / "sound"))
    with pytest.raises(FedadeError, match=r"data_batch_1 is truncated or damaged"):
        load("cifar10", tmp_path / "named")


def test_a_missing_dataset_is_one_line_with_places_and_remedies(tmp_path: Path) -> None:
    with pytest.raises(FedadeError) as raised:
        load("cifar10", tmp_path)
    for part in (str(tmp_path), "data", "fedade data fetch cifar10", "cifar-10-batches-py/", "FEDADE_DATA"):
        assert part in str(raised.value)
    assert "\n" not in str(raised.value)


def test_unknown_names_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FedadeError, match=r"unknown dataset 'cifar11'; choose from .*cifar10"):
        load("cifar11")
    with pytest.raises(FedadeError, match=r"unknown dataset 'zip:x'"):
        load("zip:x")
    with pytest.raises(FedadeError, match=r"data folder .*nowhere does not exist"):
        load("cifar10", tmp_path / "nowhere")


def test_more_images_than_the_dataset_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10_parquet(tmp_path)
    monkeypatch.setattr(registry, "DATASETS", {"cifar10": replace(CIFAR10, train_images=15)})
    with pytest.raises(FedadeError, match=r"holds 20 training images, the dataset has 15"):
        load("cifar10", tmp_path)


def test_an_altered_published_file_is_refused_with_both_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar10_batches(tmp_path)
    batch = tmp_path / "cifar-10-batches-py/data_batch_1"
    genuine = batch.read_bytes()
    release = PublishedFile(len(genuine), f"sha256:{hashlib.sha256(genuine).hexdigest()}")
    monkeypatch.setattr(registry, "DATASETS", {"cifar10": replace(CIFAR10, published={batch.name: release})})
    load("cifar10", tmp_path)
    altered = genuine.replace(b"\x01", b"\x02", 1)
    batch.write_bytes(altered)
    expected = f"data_batch_1 was altered: .*{hashlib.sha256(altered).hexdigest()}.*{release.digest}"
    with pytest.raises(FedadeError, match=expected):
        load("cifar10", tmp_path)


def published_corruption(root: Path, labels: np.ndarray) -> np.ndarray:
    (root / "CIFAR-10-C").mkdir()
    images = some_images(50).transpose(0, 2, 3, 1)
    np.save(root / "CIFAR-10-C/fog.npy", images)
    np.save(root / "CIFAR-10-C/labels.npy", np.tile(labels, 5))
    return images


def test_a_covariate_benchmark_is_its_clean_dataset_with_published_arrays_where_found(tmp_path: Path) -> None:
    write_cifar10_parquet(tmp_path)
    assert official_corruption("cifar10-c", tmp_path, "fog", 2) is None
    images = published_corruption(tmp_path, np.arange(10))
    dataset = load("cifar10-c", tmp_path)
    assert dataset.name == "cifar10-c"
    np.testing.assert_array_equal(dataset.test.inputs, load("cifar10", tmp_path).test.inputs)
    np.testing.assert_array_equal(official_corruption("cifar10-c", tmp_path, "fog", 2), images[10:20])
    with pytest.raises(FedadeError, match="'cifar10' has no corruptions"):
        official_corruption("cifar10", tmp_path, "fog", 2)


def test_published_arrays_of_other_images_are_refused(tmp_path: Path) -> None:
    write_cifar10_parquet(tmp_path)
    published_corruption(tmp_path, np.zeros(10, int))
    with pytest.raises(FedadeError, match=r"labels\.npy differs from the labels of the clean test images"):
        load("cifar10-c", tmp_path)


def test_the_inventory_tells_found_partial_missing_and_damaged_apart(tmp_path: Path) -> None:
    write_cifar10_parquet(tmp_path)
    write_parquet(
        tmp_path / "cifar100/train-0.parquet",
        [encoded(some_images(1)[0])],
        [0],
        label="fine_label",
        names=None,
    )
    entries = {entry["name"]: entry for entry in registry.describe(tmp_path)}
    assert list(entries) == list(DATASETS)
    expected = {
        "digits": "found",
        "cifar10": "partial",
        "cifar100": "damaged",
        "tiny-imagenet": "missing",
        "lama-trex": "missing",
        "cifar10-c": "partial",
        "cifar100-c": "damaged",
    }
    assert {name: entries[name]["status"] for name in expected} == expected
    assert entries["cifar10"]["where"] == str(tmp_path / "cifar10/plain_text")
    assert entries["cifar10"]["examples"] == 60_000
    assert entries["cifar10"]["remark"].startswith("20 of 50,000 training images")
    assert "test-*.parquet" in entries["cifar100"]["remark"]


def test_a_check_counts_and_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10_batches(tmp_path)
    report = registry.check("cifar10", tmp_path)
    assert (report["train"], report["test"], report["classes"]) == (20, 10, 10)
    assert report["partial"].startswith("20 of 50,000")
    assert set(report["files"].values()) == {"unknown"}
    assert report["verified"] is False
    known = {
        path.name: PublishedFile(path.stat().st_size, file_digest(path, "md5"))
        for path in (tmp_path / "cifar-10-batches-py").iterdir()
    }
    monkeypatch.setattr(registry, "DATASETS", {"cifar10": replace(CIFAR10, published=known)})
    assert registry.check("cifar10", tmp_path)["verified"] is True


def test_a_check_names_the_published_corruptions_that_can_be_read(tmp_path: Path) -> None:
    write_cifar10_parquet(tmp_path)
    published_corruption(tmp_path, np.arange(10))
    assert registry.check("cifar10-c", tmp_path)["corruptions"] == ["fog"]


def test_the_installed_digits_load_by_name() -> None:
    dataset = load("digits")
    assert dataset.num_classes == 10
    assert registry.check("digits")["train"] == len(dataset.train)
    listed = next(entry for entry in registry.describe() if entry["name"] == "digits")
    assert (listed["classes"], listed["examples"]) == (10, len(dataset.train) + len(dataset.test))
    assert where("digits") is None
