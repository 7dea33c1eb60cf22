# ruff: noqa: N803 - Triton's compile-time constants are written as constants
"""Triton kernels around the products (`fedade.kernels.products`): sums of their parts."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["number", "pieces"])
def sums_of_pieces(
    rows, sums, number, per_piece, pieces,
    CHANNELS: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_CHANNELS: tl.constexpr,
):  # fmt: skip
    """sums[lane, piece] = sum of `per_piece` of a lane's rows of CHANNELS numbers."""
    piece = tl.program_id(0) % pieces
    lane = (tl.program_id(0) // pieces).to(tl.int64)
    channel = tl.arange(0, BLOCK_CHANNELS)
    result = tl.zeros((BLOCK_ROWS, BLOCK_CHANNELS), dtype=tl.float32)
    last = tl.minimum((piece + 1) * per_piece, number)
    for first in range(piece * per_piece, last, BLOCK_ROWS):
        row = first + tl.arange(0, BLOCK_ROWS)
        mask = (row < last)[:, None] & (channel < CHANNELS)[None, :]
        places = (lane * number + row)[:, None] * CHANNELS + channel[None, :]
        result += tl.load(rows + places, mask=mask, other=0.0).to(tl.float32)
    place = (lane * pieces + piece) * CHANNELS
    tl.store(sums + place + channel, tl.sum(result, axis=0), mask=channel < CHANNELS)


@triton.jit(do_not_specialize=["number"])
def sums_of_rows(
    values, sums, number, ROWS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr
):  # fmt: skip
    """Of every ROWS rows of CHANNELS numbers their sum: so short ones that a program sees to BLOCK numbers of sums."""
    entry = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    first = entry // CHANNELS * (ROWS * CHANNELS) + entry % CHANNELS
    result = tl.zeros((AT_ONCE, BLOCK), dtype=tl.float32)
    for begin in range(0, ROWS, AT_ONCE):
        row = begin + tl.arange(0, AT_ONCE)[:, None]
        mask = (row < ROWS) & (entry < number)[None, :]
        result += tl.load(values + first[None, :] + row * CHANNELS, mask=mask, other=0.0)
    tl.store(sums + entry, tl.sum(result, axis=0), mask=entry < number)
