# ruff: noqa: N803, N806 - Triton's compile-time constants are written as constants
"""Triton kernels around the products (`fedade.kernels.products`): sums of their parts."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["splits", "tiles"])
def sum_of_partials(
    partial, total, splits, tiles,
    BIASES: tl.constexpr, OUTPUT_CHANNELS: tl.constexpr, CHANNELS: tl.constexpr, KERNEL: tl.constexpr,
    STRIDE: tl.constexpr, OUTPUTS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK_SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """total[lane] = gradient of packed weights, then of the biases: sums over splits and over the outputs of a group.

    The tap in column c met output p at window column c + STRIDE * p.
    """
    STRETCH: tl.constexpr = COLUMNS * CHANNELS
    BREADTH: tl.constexpr = OUTPUTS * OUTPUT_CHANNELS
    WEIGHTS: tl.constexpr = OUTPUT_CHANNELS * KERNEL * KERNEL * CHANNELS
    PARTIAL_WEIGHTS: tl.constexpr = KERNEL * BREADTH * STRETCH

    lane = (tl.program_id(0) // tiles).to(tl.int64)
    element = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    exists = element < WEIGHTS + BIASES
    column_and_channel = element % (KERNEL * CHANNELS)
    tap_row = element // (KERNEL * CHANNELS) % KERNEL
    output_channel = element // (KERNEL * KERNEL * CHANNELS)
    place = (tap_row * BREADTH + output_channel) * STRETCH + column_and_channel
    place = tl.where(element < WEIGHTS, place, PARTIAL_WEIGHTS + element - WEIGHTS)
    step = tl.where(element < WEIGHTS, OUTPUT_CHANNELS * STRETCH + STRIDE * CHANNELS, OUTPUT_CHANNELS)
    result = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, splits, BLOCK_SPLITS):
        split = first + tl.arange(0, BLOCK_SPLITS)
        rows = partial + (lane * splits + split) * (PARTIAL_WEIGHTS + BREADTH)
        mask = (split < splits)[:, None] & exists[None, :]
        for output in tl.static_range(OUTPUTS):
            pieces = tl.load(rows[:, None] + (place + output * step)[None, :], mask=mask, other=0.0)
            result += tl.sum(pieces, axis=0)
    tl.store(total + lane * (WEIGHTS + BIASES) + element, result, mask=exists)


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
