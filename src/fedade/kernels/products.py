# ruff: noqa: N803, N806, C901 - Triton's compile-time constants are written as constants; branches on them cost nothing
"""The Triton kernels: products of windows (`fedade.kernels.geometry`), for many lanes at once.

A lane is one client: its own samples and, unless the lane stride of its weights is 0, its own weights. Images are
channels-last and contiguous. No kernel adds with atomics, so results are the same bits every time.
"""

import triton
import triton.language as tl


@triton.jit
def _normal_law(value):
    """How much of a normal distribution lies below, and its density times √(2 π): gelu(x) = x share(x), of slope
    share(x) + x density(x). The share is off by at most 1e-7 (Abramowitz and Stegun, 7.1.26); an exact one fills the
    registers, so that half as many programs run at once."""
    density = tl.exp(-0.5 * value * value)
    near = 1.0 / (1.0 + 0.23164189 * tl.abs(value))
    beyond = 1.061405429 * near - 1.453152027
    beyond = beyond * near + 1.421413741
    beyond = beyond * near - 0.284496736
    beyond = (beyond * near + 0.254829592) * near * density * 0.5
    return tl.where(value < 0, beyond, 1.0 - beyond), density


@triton.jit(do_not_specialize=["groups", "tiles", "moment_step"])
def window_product(
    source, weights, bias, residual, gate, before, output, moments, groups, tiles, source_lane, weights_lane, bias_lane,
    moment_step,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, OUTPUT_HEIGHT: tl.constexpr,
    OUTPUT_WIDTH: tl.constexpr, OUTPUT_CHANNELS: tl.constexpr, KERNEL: tl.constexpr, PHASES: tl.constexpr,
    OUTPUTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP_ROWS: tl.constexpr,
    GROUP_COLUMNS: tl.constexpr, ROW_STEP: tl.constexpr, ROW_OFFSET: tl.constexpr, COLUMN_STEP: tl.constexpr,
    COLUMN_OFFSET: tl.constexpr, ROW_TAP: tl.constexpr, ROW_TAP_STEP: tl.constexpr, COLUMN_TAP: tl.constexpr,
    COLUMN_TAP_STEP: tl.constexpr, COLUMN_TAP_OUTPUT: tl.constexpr, OUTPUT_CHANNEL_STRIDE: tl.constexpr,
    CHANNEL_STRIDE: tl.constexpr, TAP_STRIDE: tl.constexpr, RESIDUAL_STEP: tl.constexpr, RECTIFIED: tl.constexpr,
    GELU: tl.constexpr, PRECISION: tl.constexpr, PIECE: tl.constexpr, BLOCK_GROUPS: tl.constexpr,
    BLOCK_BREADTH: tl.constexpr, BLOCK_DEPTH: tl.constexpr,
):  # fmt: skip
    """output = relu(windows(source) @ weights + bias + residual), or that sum where gate > 0. With a gelu instead, the
    sum is stored before it if asked for, and a gate is what the gelu was given, by whose slope the sum is multiplied.

    With a step, the residual has but every RESIDUAL_STEP-th row and column of the output, and is zero in between.

    moments[0, lane, piece] is what PIECE groups of an image add to the mean of what is stored, and moments[1] what they
    add to that of its squares.
    """
    BREADTH: tl.constexpr = OUTPUTS * OUTPUT_CHANNELS
    STRETCH: tl.constexpr = COLUMNS * CHANNELS
    BREADTH_TILES: tl.constexpr = (BREADTH + BLOCK_BREADTH - 1) // BLOCK_BREADTH
    CHUNKS: tl.constexpr = (STRETCH + BLOCK_DEPTH - 1) // BLOCK_DEPTH

    tile = tl.program_id(0) % tiles
    lane = (tl.program_id(0) // tiles).to(tl.int64)
    breadth_tile = tile % BREADTH_TILES
    phase = (tile // BREADTH_TILES) % PHASES
    group_tile = tile // (BREADTH_TILES * PHASES)

    group = group_tile * BLOCK_GROUPS + tl.arange(0, BLOCK_GROUPS)
    exists = group < groups
    image = (group // (GROUP_ROWS * GROUP_COLUMNS)).to(tl.int64)
    group_row = (group // GROUP_COLUMNS) % GROUP_ROWS
    group_column = group % GROUP_COLUMNS
    number = breadth_tile * BLOCK_BREADTH + tl.arange(0, BLOCK_BREADTH)
    output_channel = number % OUTPUT_CHANNELS
    position = number // OUTPUT_CHANNELS

    first_row = group_row * ROW_STEP - ROW_OFFSET
    first_column = group_column * COLUMN_STEP - COLUMN_OFFSET
    windows = source + lane * source_lane + image * (HEIGHT * WIDTH * CHANNELS)
    windows += (first_row * WIDTH + first_column) * CHANNELS
    kernels = weights + lane * weights_lane + output_channel * OUTPUT_CHANNEL_STRIDE

    if PHASES == 1:
        first_step = 0
        last_step = ROWS * CHUNKS
    else:  # taps fall with the row: tap = ROW_TAP + phase - PHASES * row
        tap = ROW_TAP + phase
        first_step = tl.maximum(tap - KERNEL + PHASES, 0) // PHASES * CHUNKS
        last_step = (tap // PHASES + 1) * CHUNKS
    product = tl.zeros((BLOCK_GROUPS, BLOCK_BREADTH), dtype=tl.float32)
    for step in range(first_step, last_step):
        window_row = step // CHUNKS
        depth = (step % CHUNKS) * BLOCK_DEPTH + tl.arange(0, BLOCK_DEPTH)
        window_column = depth // CHANNELS
        row = first_row + window_row
        column = first_column[:, None] + window_column[None, :]
        seen = (exists & (row >= 0) & (row < HEIGHT))[:, None] & (column >= 0) & (column < WIDTH)
        tap_row = ROW_TAP + phase + ROW_TAP_STEP * window_row
        tap_column = COLUMN_TAP + COLUMN_TAP_STEP * window_column[:, None] + COLUMN_TAP_OUTPUT * position[None, :]
        meets = (tap_column >= 0) & (tap_column < KERNEL)
        if STRETCH % BLOCK_DEPTH != 0:
            seen &= (depth < STRETCH)[None, :]
            meets &= (depth < STRETCH)[:, None]
        if BREADTH % BLOCK_BREADTH != 0:
            meets &= (number < BREADTH)[None, :]
        left = tl.load(windows[:, None] + (window_row * (WIDTH * CHANNELS) + depth)[None, :], mask=seen, other=0.0)
        within = (tap_row * KERNEL + tap_column) * TAP_STRIDE + ((depth % CHANNELS) * CHANNEL_STRIDE)[:, None]
        right = tl.load(kernels[None, :] + within, mask=meets, other=0.0)
        product = tl.dot(left, right, product, input_precision=PRECISION)

    output_row = group_row * PHASES + phase
    exists &= output_row < OUTPUT_HEIGHT
    kept = exists[:, None] & (number < BREADTH)[None, :]
    if OUTPUT_WIDTH % OUTPUTS != 0:
        kept &= group_column[:, None] * OUTPUTS + position[None, :] < OUTPUT_WIDTH
    samples = groups // (GROUP_ROWS * GROUP_COLUMNS)
    place = (lane * samples + image) * (OUTPUT_HEIGHT * OUTPUT_WIDTH * OUTPUT_CHANNELS)
    place += (output_row * OUTPUT_WIDTH + group_column * OUTPUTS) * OUTPUT_CHANNELS
    places = place[:, None] + number[None, :]
    if bias is not None:
        product += tl.load(bias + lane * bias_lane + output_channel, mask=number < BREADTH, other=0.0)[None, :]
    if residual is not None:
        if RESIDUAL_STEP == 1:
            product += tl.load(residual + places, mask=kept, other=0.0).to(tl.float32)
        else:
            column = group_column[:, None] * OUTPUTS + position[None, :]
            there = kept & (output_row % RESIDUAL_STEP == 0)[:, None] & (column % RESIDUAL_STEP == 0)
            row = (lane * samples + image) * ((OUTPUT_HEIGHT - 1) // RESIDUAL_STEP + 1) + output_row // RESIDUAL_STEP
            pixel = row[:, None] * ((OUTPUT_WIDTH - 1) // RESIDUAL_STEP + 1) + column // RESIDUAL_STEP
            added = tl.load(residual + pixel * OUTPUT_CHANNELS + output_channel[None, :], mask=there, other=0.0)
            product += added.to(tl.float32)
    if RECTIFIED:
        product = tl.maximum(product, 0.0)
    if GELU and gate is None:
        if before is not None:
            tl.store(before + places, product.to(before.dtype.element_ty), mask=kept)
        share, _ = _normal_law(product)
        product *= share
    if gate is not None:
        given = tl.load(gate + places, mask=kept, other=0.0)
        if GELU:
            given = given.to(tl.float32)
            share, density = _normal_law(given)
            product *= share + given * density * 0.3989422804014327
        else:
            product = tl.where(given > 0, product, 0.0)
    stored = product.to(output.dtype.element_ty)
    tl.store(output + places, stored, mask=kept)
    if moments is not None:
        PIECES: tl.constexpr = BLOCK_GROUPS // PIECE
        exact = tl.reshape(tl.where(kept, stored.to(tl.float32), 0.0), (PIECES, PIECE, BLOCK_BREADTH))
        piece = group_tile * PIECES + tl.arange(0, PIECES)
        at = moments + (lane * (groups // PIECE) + piece)[:, None] * BREADTH + number[None, :]
        there = (piece < groups // PIECE)[:, None] & (number < BREADTH)[None, :]
        tl.store(at, tl.sum(exact, axis=1) / (OUTPUT_HEIGHT * OUTPUT_WIDTH), mask=there)
        tl.store(at + moment_step, tl.sum(exact * exact, axis=1) / (OUTPUT_HEIGHT * OUTPUT_WIDTH), mask=there)


@triton.jit(do_not_specialize=["groups", "groups_per_split", "splits"])
def window_outer_product(
    source, gradient, partial, groups, groups_per_split, splits, source_lane,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, OUTPUT_HEIGHT: tl.constexpr,
    OUTPUT_WIDTH: tl.constexpr, OUTPUT_CHANNELS: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, GROUP_COLUMNS: tl.constexpr, ROW_STEP: tl.constexpr, ROW_OFFSET: tl.constexpr,
    COLUMN_STEP: tl.constexpr, COLUMN_OFFSET: tl.constexpr, ROWS_TOGETHER: tl.constexpr, COLUMN_STRIDE: tl.constexpr,
    WITH_SUMS: tl.constexpr, PRECISION: tl.constexpr, BLOCK_GROUPS: tl.constexpr, BLOCK_BREADTH: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
):  # fmt: skip
    """partial[lane, split, row] = sum over the split's groups of gradient (x) window row; behind it, of the gradient.

    A program sees to ROWS_TOGETHER (1, or all 3) rows of the window. Without a stride, it reads a row of the source
    once and lets it meet the gradients of several rows of groups; with one, it reads the gradient of a group once.
    """
    BREADTH: tl.constexpr = OUTPUTS * OUTPUT_CHANNELS
    STRETCH: tl.constexpr = COLUMNS * CHANNELS
    BREADTH_TILES: tl.constexpr = (BREADTH + BLOCK_BREADTH - 1) // BLOCK_BREADTH
    CHUNKS: tl.constexpr = (STRETCH + BLOCK_DEPTH - 1) // BLOCK_DEPTH
    GROUPS_PER_IMAGE: tl.constexpr = OUTPUT_HEIGHT * GROUP_COLUMNS
    # Whether every block is made of whole rows of one image, so that its inner geometry never changes.
    WHOLE: tl.constexpr = (BLOCK_GROUPS % GROUP_COLUMNS == 0) and (GROUPS_PER_IMAGE % BLOCK_GROUPS == 0)

    TILES: tl.constexpr = BREADTH_TILES * CHUNKS * (ROWS // ROWS_TOGETHER)
    tile = tl.program_id(0) % TILES
    split = tl.program_id(0) // TILES % splits
    lane = (tl.program_id(0) // (TILES * splits)).to(tl.int64)
    number = (tile % BREADTH_TILES) * BLOCK_BREADTH + tl.arange(0, BLOCK_BREADTH)
    chunk = tile // BREADTH_TILES % CHUNKS
    first_tap = tile // (BREADTH_TILES * CHUNKS) * ROWS_TOGETHER
    depth = chunk * BLOCK_DEPTH + tl.arange(0, BLOCK_DEPTH)
    window_column = depth // CHANNELS
    samples = groups // GROUPS_PER_IMAGE
    windows = source + lane * source_lane
    gradients = gradient + lane * samples * (OUTPUT_HEIGHT * OUTPUT_WIDTH * OUTPUT_CHANNELS)
    within = tl.arange(0, BLOCK_GROUPS)

    gradient_sum = tl.zeros((BLOCK_GROUPS, BLOCK_BREADTH), dtype=tl.float32)
    first_product = tl.zeros((BLOCK_BREADTH, BLOCK_DEPTH), dtype=tl.float32)
    second_product = first_product
    third_product = first_product
    last = tl.minimum((split + 1) * groups_per_split, groups)
    for first in range(split * groups_per_split, last, BLOCK_GROUPS):
        if WHOLE:
            image = (first // GROUPS_PER_IMAGE).to(tl.int64)
            group_row = first // GROUP_COLUMNS % OUTPUT_HEIGHT + within // GROUP_COLUMNS
            group_column = within % GROUP_COLUMNS
            exists = within >= 0
        else:
            group = first + within
            image = (group // GROUPS_PER_IMAGE).to(tl.int64)
            group_row = group // GROUP_COLUMNS % OUTPUT_HEIGHT
            group_column = group % GROUP_COLUMNS
            exists = group < last
        first_column = group_column * COLUMN_STEP - COLUMN_OFFSET
        column = first_column[:, None] + window_column[None, :]
        seen = exists[:, None] & (column >= 0) & (column < WIDTH)
        kept = exists[:, None]
        if STRETCH % BLOCK_DEPTH != 0:
            seen &= (depth < STRETCH)[None, :]
        if BREADTH % BLOCK_BREADTH != 0:
            kept &= (number < BREADTH)[None, :]
        if OUTPUT_WIDTH % OUTPUTS != 0:
            kept &= group_column[:, None] * OUTPUTS + (number // OUTPUT_CHANNELS)[None, :] < OUTPUT_WIDTH
        window = image * (HEIGHT * WIDTH * CHANNELS) + (group_row * (ROW_STEP * WIDTH) + first_column) * CHANNELS
        place = image * (OUTPUT_HEIGHT * OUTPUT_WIDTH * OUTPUT_CHANNELS)
        place += (group_row * OUTPUT_WIDTH + group_column * OUTPUTS) * OUTPUT_CHANNELS
        window_pointers = windows + window[:, None] + depth[None, :]
        place_pointers = gradients + place[:, None] + number[None, :]
        if ROW_STEP == 1:
            right = tl.load(window_pointers, mask=seen, other=0.0)
        else:
            left = tl.load(place_pointers, mask=kept, other=0.0)
        for turn in tl.static_range(ROWS_TOGETHER):
            tap = first_tap + turn
            if ROW_STEP == 1:
                row = group_row + (ROW_OFFSET - tap)
                meets = kept & ((row >= 0) & (row < OUTPUT_HEIGHT))[:, None]
                shift = (ROW_OFFSET - tap) * (OUTPUT_WIDTH * OUTPUT_CHANNELS)
                left = tl.load(place_pointers + shift, mask=meets, other=0.0)
            else:
                row = group_row * ROW_STEP + (tap - ROW_OFFSET)
                meets = seen & ((row >= 0) & (row < HEIGHT))[:, None]
                right = tl.load(window_pointers + (tap - ROW_OFFSET) * (WIDTH * CHANNELS), mask=meets, other=0.0)
            if WITH_SUMS and (turn == ROW_OFFSET or ROWS_TOGETHER == 1):
                gradient_sum += left.to(tl.float32)
            turned = tl.trans(left)
            if turn == 0:
                first_product = tl.dot(turned, right, first_product, input_precision=PRECISION)
            elif turn == 1:
                second_product = tl.dot(turned, right, second_product, input_precision=PRECISION)
            else:
                third_product = tl.dot(turned, right, third_product, input_precision=PRECISION)

    place = (lane * splits + split) * (ROWS * BREADTH * STRETCH + BREADTH)
    tap_column = window_column[None, :] - COLUMN_STRIDE * (number // OUTPUT_CHANNELS)[:, None]
    kept = (number < BREADTH)[:, None] & (tap_column >= 0) & (tap_column < ROWS)
    places = partial + place + (first_tap * BREADTH + number[:, None]) * STRETCH + depth[None, :]
    tl.store(places, first_product, mask=kept)
    if ROWS_TOGETHER == 3:
        tl.store(places + BREADTH * STRETCH, second_product, mask=kept)
        tl.store(places + 2 * BREADTH * STRETCH, third_product, mask=kept)
    # One program met every gradient just once.
    if WITH_SUMS and (chunk == 0) & ((first_tap == ROW_OFFSET) | (ROWS_TOGETHER == 3)):
        place += ROWS * BREADTH * STRETCH
        tl.store(partial + place + number, tl.sum(gradient_sum, axis=0), mask=number < BREADTH)
