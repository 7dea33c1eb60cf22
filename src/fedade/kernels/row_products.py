# ruff: noqa: N803, N806 - Triton's compile-time constants are written as constants
"""3x3 convolutions of 16 channels, row by row: a program walks down its images, reads every row once, and keeps the
weights beside its processor.

`fedade.kernels.products` reads each row for all three rows of outputs that it meets, and the weights for every block;
with so few channels that is what takes its time, not the products. Windows are those of `fedade.kernels.geometry`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from fedade.kernels.geometry import Image, Window
from fedade.kernels.grids import launch

OUTPUTS = 2
"""Neighbouring columns of outputs, which share two of the four columns that they need."""
CHANNELS, BREADTHS = 16, (16, 32, 64)
"""Of the source, and of a group of outputs. With 32 channels blocks are as fast: there products take the time."""
SEQUENCES = 64
"""Columns of groups that a program walks down: as many as registers hold the sums of three rows for."""
ROWS, MOST_ROWS, MANY_PROGRAMS = 8, 32, 512
"""How far it walks: further where there are many programs."""


@dataclass(frozen=True)
class Walk:
    """How a product is cut into programs that walk down rows."""

    outputs: int = OUTPUTS
    sequences: int = SEQUENCES
    warps: int = 4
    stages: int = 3


def walk(window: Window, bytes_each: int) -> Walk | None:
    """How to walk down windows of `OUTPUTS` outputs, where that is the faster way."""
    plain = window.kernel == 3 and window.phases == window.row_step == 1 and bytes_each == 2
    small = window.source.channels == CHANNELS and window.breadth in BREADTHS
    return Walk() if plain and small and window.output.width % OUTPUTS == 0 else None


def strips_of(cut: Walk, lanes: int, samples: int, image: Image) -> tuple[int, int]:
    """How many strips of rows so many outputs are cut into, and of how many rows."""
    blocks = -(-(samples * image.width // OUTPUTS) // cut.sequences)
    rows = MOST_ROWS if lanes * blocks * image.height >= MANY_PROGRAMS * MOST_ROWS else ROWS
    return -(-image.height // rows), rows


def launch_rows(
    cut: Walk,
    window: Window,
    output: Tensor,
    moments: Tensor | None,
    others: Sequence[Tensor | None],
    steps: Sequence[int],
    **told: Any,
) -> None:
    """`others` are source, weights, bias, residual and gate; `steps` lead from lane to lane of the first three, and
    from moment to moment."""
    lanes, samples, height, width, channels = output.shape
    sequences = samples * width // OUTPUTS
    blocks = -(-sequences // cut.sequences)
    strips, rows = strips_of(cut, lanes, samples, window.output)
    launch(row_product, strips, blocks, lanes)(
        *(*others, output, moments, sequences, blocks, strips, *steps),
        HEIGHT=height,
        WIDTH=width,
        CHANNELS=window.source.channels,
        OUTPUT_CHANNELS=channels,
        OUTPUTS=OUTPUTS,
        ROWS=rows,
        SEQUENCES=cut.sequences,
        num_warps=cut.warps,
        num_stages=cut.stages,
        **told,
    )


@triton.jit(do_not_specialize=["sequences", "blocks", "strips", "moment_step"])
def row_product(
    source, weights, bias, residual, gate, output, moments, sequences, blocks, strips, source_lane, weights_lane,
    bias_lane, moment_step,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, OUTPUT_CHANNELS: tl.constexpr,
    OUTPUTS: tl.constexpr, ROW_TAP: tl.constexpr, ROW_TAP_STEP: tl.constexpr, COLUMN_TAP: tl.constexpr,
    COLUMN_TAP_STEP: tl.constexpr, COLUMN_TAP_OUTPUT: tl.constexpr, OUTPUT_CHANNEL_STRIDE: tl.constexpr,
    CHANNEL_STRIDE: tl.constexpr, TAP_STRIDE: tl.constexpr, RECTIFIED: tl.constexpr, PIECE: tl.constexpr,
    ROWS: tl.constexpr, SEQUENCES: tl.constexpr,
):  # fmt: skip
    """output = relu(windows(source) @ weights + bias + residual), or that sum where gate > 0. Moments are those of
    `fedade.kernels.products`, a piece that of PIECE sequences in a strip."""
    BREADTH: tl.constexpr = OUTPUTS * OUTPUT_CHANNELS
    STRETCH: tl.constexpr = (OUTPUTS + 2) * CHANNELS
    GROUPS: tl.constexpr = WIDTH // OUTPUTS
    TAP_ROW: tl.constexpr = 3 * TAP_STRIDE

    strip = tl.program_id(0) % strips
    block = tl.program_id(0) // strips % blocks
    lane = (tl.program_id(0) // (strips * blocks)).to(tl.int64)
    sequence = block * SEQUENCES + tl.arange(0, SEQUENCES)
    exists = sequence < sequences
    image = lane * (sequences // GROUPS) + sequence // GROUPS
    first_column = sequence % GROUPS * OUTPUTS - 1
    number = tl.arange(0, BREADTH)
    output_channel, position = number % OUTPUT_CHANNELS, number // OUTPUT_CHANNELS
    depth = tl.arange(0, STRETCH)
    window_column = depth // CHANNELS

    column = first_column[:, None] + window_column[None, :]
    seen = exists[:, None] & (column >= 0) & (column < WIDTH)
    windows = source + lane * source_lane + (sequence // GROUPS).to(tl.int64) * (HEIGHT * WIDTH * CHANNELS)
    windows = (windows + first_column * CHANNELS)[:, None] + depth[None, :]

    tap_column = COLUMN_TAP + COLUMN_TAP_STEP * window_column[:, None] + COLUMN_TAP_OUTPUT * position[None, :]
    meets = (tap_column >= 0) & (tap_column < 3)
    kernels = (weights + lane * weights_lane + output_channel * OUTPUT_CHANNEL_STRIDE)[None, :]
    kernels = kernels + tap_column * TAP_STRIDE + (depth % CHANNELS * CHANNEL_STRIDE)[:, None]
    upper = tl.load(kernels + ROW_TAP * TAP_ROW, mask=meets, other=0.0)
    middle = tl.load(kernels + (ROW_TAP + ROW_TAP_STEP) * TAP_ROW, mask=meets, other=0.0)
    lower = tl.load(kernels + (ROW_TAP + 2 * ROW_TAP_STEP) * TAP_ROW, mask=meets, other=0.0)
    if bias is not None:
        added = tl.load(bias + lane * bias_lane + output_channel)[None, :]
    places = (image * (HEIGHT * WIDTH * OUTPUT_CHANNELS) + (first_column + 1) * OUTPUT_CHANNELS)[:, None]
    places = places + number[None, :]

    begin = strip * ROWS
    end = tl.minimum(begin + ROWS, HEIGHT)
    nothing = tl.zeros((SEQUENCES, BREADTH), dtype=tl.float32)
    here = nothing  # of the output at the row that is read: what the row above it gave
    above = nothing  # of the output one row higher: what it lacks is this row
    sums = nothing
    squares = nothing
    for row in range(begin - 1, end + 1):
        rows = row + tl.zeros((SEQUENCES,), dtype=tl.int32)  # one truth is no mask of many numbers to all of Triton
        left = tl.load(
            windows + row * (WIDTH * CHANNELS), mask=seen & ((rows >= 0) & (rows < HEIGHT))[:, None], other=0.0
        )
        kept = (exists & (rows > begin))[:, None]
        place = places + (row - 1) * (WIDTH * OUTPUT_CHANNELS)
        product = tl.dot(left, lower, above)
        above = tl.dot(left, middle, here)
        here = tl.dot(left, upper, nothing)
        if bias is not None:
            product += added
        if residual is not None:
            product += tl.load(residual + place, mask=kept, other=0.0).to(tl.float32)
        if RECTIFIED:
            product = tl.maximum(product, 0.0)
        if gate is not None:
            product = tl.where(tl.load(gate + place, mask=kept, other=0.0) > 0, product, 0.0)
        stored = product.to(output.dtype.element_ty)
        tl.store(output + place, stored, mask=kept)
        if moments is not None:
            exact = tl.where(kept, stored.to(tl.float32), 0.0)
            sums += exact
            squares += exact * exact
    if moments is not None:
        PIECES: tl.constexpr = SEQUENCES // PIECE
        OF_IMAGE: tl.constexpr = GROUPS // PIECE
        piece = block * PIECES + tl.arange(0, PIECES)
        strip_of_image = (lane * (sequences // GROUPS) + piece // OF_IMAGE) * strips + strip
        at = moments + (strip_of_image * OF_IMAGE + piece % OF_IMAGE)[:, None] * BREADTH + number[None, :]
        there = (piece < sequences // PIECE)[:, None] & (number < BREADTH)[None, :]
        sums = tl.sum(tl.reshape(sums, (PIECES, PIECE, BREADTH)), axis=1)
        squares = tl.sum(tl.reshape(squares, (PIECES, PIECE, BREADTH)), axis=1)
        tl.store(at, sums / (HEIGHT * WIDTH), mask=there)
        tl.store(at + moment_step, squares / (HEIGHT * WIDTH), mask=there)
