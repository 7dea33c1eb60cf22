"""A pickle in place of a CIFAR batch can ask for anything and gets nothing but arrays and strings."""

import contextlib
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_layouts import write_cifar10_batches

from fedade.core.errors import FedadeError
from fedade.data.readers.cifar import ADMITTED, PickledArray, load_restricted
from fedade.data.registry import load

# What Python 2 and its numpy wrote, as in the published files: native strings, raw bytes in one of them.
PYTHON_2_BATCH = (
    b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    b"(K\x01K\x02K\x03\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    b"\x89U\x06\x00\x7f\x80\xfe\xff\ntbU\x06labels](K\x03K\x04eu."
)


class Attack:
    """Runs a shell command when unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_malicious_batch_does_not_execute(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "executed"
    write_cifar10_batches(tmp_path)
    batch = tmp_path / "cifar-10-batches-py/data_batch_1"
    batch.write_bytes(pickle.dumps({"data": Attack(marker), "labels": [0]}, protocol))
    with pytest.raises(FedadeError, match=r"data_batch_1 .* asks for (posix|nt)\.system, which is refused"):
        load("cifar10", tmp_path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "name",
    [
        "os system",
        "builtins eval",
        "builtins getattr",
        "numpy load",
        "numpy.core.multiarray scalar",
        "copyreg _reconstructor",
    ],
)
def test_every_name_outside_the_table_is_refused(tmp_path: Path, name: str) -> None:
    module, attribute = name.split()
    path = tmp_path / "batch"
    path.write_bytes(f"c{module}\n{attribute}\n.".encode())
    with pytest.raises(FedadeError, match=f"asks for {module}.{attribute}"):
        load_restricted(path)


def test_admitted_names_lead_to_stand_ins_only() -> None:
    assert {stand_in.__module__ for stand_in in ADMITTED.values()} == {load_restricted.__module__}


def test_the_pickles_of_python_2_are_read(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(PYTHON_2_BATCH)
    content = load_restricted(path)
    assert content["labels"] == [3, 4]
    assert isinstance(content["data"], PickledArray)
    np.testing.assert_array_equal(content["data"].to_numpy(), [[0, 127, 128], [254, 255, 10]])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", range(6))
def test_arrays_keep_their_order(tmp_path: Path, order: str, protocol: int) -> None:
    array = np.asarray(np.arange(12, dtype=np.uint8).reshape(3, 4), order=order)
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({b"data": array}, protocol))
    np.testing.assert_array_equal(load_restricted(path)["data"].to_numpy(), array)


@given(content=st.binary(max_size=200) | st.binary(max_size=40).map(lambda tail: PYTHON_2_BATCH[:60] + tail))
def test_no_bytes_whatever_escape_as_another_error(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "arbitrary-batch"
    path.write_bytes(content)
    with contextlib.suppress(FedadeError):
        load_restricted(path)


def test_a_refused_name_cannot_break_the_line(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(b"\x80\x04\x8c\x04a\nb\nx\x8c\x01c\x93.")
    with pytest.raises(FedadeError) as raised:
        load_restricted(path)
    assert "\n" not in str(raised.value)
