"""Arrays inside a page: small, and read back as they were."""

import base64
import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedade.reporting.page.grids import Blobs, Packed


def unpacked(blobs: Blobs, packed: Packed) -> np.ndarray:
    """What the page's script does."""
    content = gzip.decompress(base64.b64decode(blobs.lines[packed["blob"]]))
    codes = np.frombuffer(content, f"<u{packed['bits'] // 8}").reshape(packed["shape"])
    return np.where(codes == 2 ** packed["bits"] - 1, np.nan, packed["low"] + packed["step"] * codes)


values_with_gaps = arrays(
    float, st.tuples(st.integers(1, 6), st.integers(1, 9)), elements=st.one_of(st.floats(-1e3, 1e3), st.just(np.nan))
)


@given(values_with_gaps, st.sampled_from([8, 16]))
def test_levels_are_off_by_half_a_step_at_most(values, bits):
    blobs = Blobs()
    packed = blobs.levels(values, bits=bits)
    found = unpacked(blobs, packed)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
    span = np.nanmax(values) - np.nanmin(values) if np.isfinite(values).any() else 0
    np.testing.assert_allclose(found, values, rtol=0, atol=span / (2**bits - 2) / 2 * (1 + 1e-6) + 1e-9)


@given(st.integers(1, 254), st.data())
def test_right_answers_are_kept_exactly(of, data):
    counts = data.draw(arrays(int, (3, 7), elements=st.integers(0, of)))
    blobs = Blobs()
    packed = blobs.shares(counts / of, np.full(counts.shape, float(of)))
    assert packed["bits"] == 8
    np.testing.assert_allclose(unpacked(blobs, packed), counts / of, atol=1e-12)


@pytest.mark.parametrize("of", [np.array([[30.0, 31.0]]), np.array([[1000.0, 1000.0]])], ids=["mixed", "large"])
def test_other_batches_get_sixteen_bits(of):
    blobs = Blobs()
    shares = np.array([[1 / 3, 0.9]])
    packed = blobs.shares(shares, of)
    assert packed["bits"] == 16
    np.testing.assert_allclose(unpacked(blobs, packed), shares, atol=1e-5)


def test_equal_arrays_are_kept_once():
    blobs = Blobs()
    first = blobs.levels(np.linspace(0, 1, 50), 0, 1)
    before = blobs.size
    assert blobs.levels(np.linspace(0, 1, 50), 0, 1) == first
    assert blobs.size == before
    assert blobs.levels(np.linspace(1, 0, 50), 0, 1)["blob"] == 1


def test_a_copy_can_be_thrown_away():
    blobs = Blobs()
    blobs.levels(np.arange(5.0))
    tried = blobs.copy()
    tried.levels(np.arange(9.0))
    assert (len(blobs.lines), len(tried.lines)) == (1, 2)
    assert blobs.levels(np.arange(9.0))["blob"] == 1, "what the copy learnt is its own"


def test_the_same_numbers_give_the_same_bytes():
    one, other = Blobs(), Blobs()
    for blobs in (one, other):
        blobs.levels(np.linspace(0, 1, 300))
    assert one.lines == other.lines
