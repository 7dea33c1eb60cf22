"""Block sizes by shape, chosen from measurements (`speed/tilings.py`): nothing is tuned while users wait."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tiling:
    """How a product is cut into programs."""

    outputs: int
    """Neighbouring output columns per group (`fedade.kernels.geometry.Window`)."""
    groups: int
    """Groups per block."""
    breadth: int
    """Numbers of a group per block."""
    depth: int
    """Numbers of a window row per block."""
    warps: int = 4
    stages: int = 3
    """Blocks in flight."""


@dataclass(frozen=True)
class SplitTiling:
    """How a weight gradient is cut into programs."""

    block: Tiling
    rows_together: bool = False
    """Whether one program sees to all rows of the window: fewer reads, more registers."""
    programs: int = 132
    """How many there may be, if one piece of samples each is not more; a constant, so that sums do not depend on the
    device. One or two for each of an H200's 132 multiprocessors: a few more would wait for all the others."""
    with_sums: bool = True
    """Whether the bias's gradient is summed on the way; not where registers are short."""


def power_of_two(number: int, least: int = 16) -> int:
    """The smallest block size that holds a number."""
    return max(least, 1 << (number - 1).bit_length())


WIDE = 128
"""Channels from which a product without a window, of tokens or of 1x1 convolutions, has narrow blocks: 192 numbers of a
group fill three of 64, but one and a half of 128."""


def _is_wide(channels: int, output_channels: int, bytes_each: int, kernel: int) -> bool:
    return kernel == 1 and bytes_each == 2 and min(channels, output_channels) >= WIDE


def product_tiling(channels: int, output_channels: int, stride: int, bytes_each: int, kernel: int = 3) -> Tiling:
    """For a convolution; `channels` are those of its source."""
    if _is_wide(channels, output_channels, bytes_each, kernel):
        return Tiling(1, 128, 64, 64, 4, 2 if channels <= 256 else 3)
    if channels <= 4:
        return Tiling(2, 128, _breadth(2 * output_channels), 16, 4, 1)
    if bytes_each == 4:
        outputs = _outputs(64, output_channels) if stride == 1 else 1
        breadth = _breadth(outputs * output_channels)
        if stride == 1 and breadth == 128:
            return Tiling(outputs, 128, breadth, 32, 8, 3)
        return Tiling(outputs, 64 if outputs > 1 or breadth == 128 else 128, breadth, 32, 4, 3)
    outputs = _outputs(128 if output_channels > 32 else 64, output_channels) if stride == 1 else 1
    breadth = _breadth(outputs * output_channels)
    if channels <= 32:
        return Tiling(outputs, 128, breadth, 32, 4, 4)
    return Tiling(outputs, 128, breadth, 64, 4 if breadth < 128 or channels >= 128 else 8, 3)


def input_gradient_tiling(channels: int, output_channels: int, stride: int, bytes_each: int, kernel: int = 3) -> Tiling:
    """For the gradient with respect to the input; `channels` are those of its source, the convolution's output."""
    if _is_wide(channels, output_channels, bytes_each, kernel) and stride == 1 and output_channels % 128:
        return Tiling(1, 128, 64, 64, 8, 3)
    outputs = stride * _outputs(64, stride * output_channels)
    breadth = _breadth(outputs * output_channels)
    if bytes_each == 4:
        return Tiling(outputs, 64, min(64, breadth), 32, 4, 3)
    if channels <= 32:
        return Tiling(outputs, 128, breadth, 32, 4, 4)
    if breadth == 128 and stride > 1:
        return Tiling(outputs, 64, breadth, 64, 4, 3)
    return Tiling(outputs, 128, breadth, 64, 8 if breadth == 128 else 4, 3)


def _breadth(number: int) -> int:
    return min(128, power_of_two(number))


def _outputs(breadth: int, channels: int) -> int:
    """How many columns fill a breadth; not many, since windows of more columns meet more zeros."""
    return max(1, min(4, breadth // channels))


def weight_gradient_tiling(channels: int, output_channels: int, stride: int, bytes_each: int) -> SplitTiling:
    """For the gradient with respect to the weights."""
    outputs = _outputs(64, output_channels) if stride == 1 else 1
    stretch = power_of_two((outputs + 2) * channels)
    if bytes_each == 4:
        depth = min(128, stretch) if stride == 1 else min(64, power_of_two(channels))
        return SplitTiling(
            Tiling(outputs, 64, 64, depth, 4, 1), programs=600 if channels <= 32 else 300, with_sums=False
        )
    if channels <= 4:
        return SplitTiling(Tiling(outputs, 128, 64, stretch, 4, 4), rows_together=True)
    if outputs > 1:
        return SplitTiling(Tiling(outputs, 32, 64, min(128, stretch), 4, 4), rows_together=True)
    depth = min(64, power_of_two(channels))
    return SplitTiling(Tiling(outputs, 64, 64, depth, 4, 3 if depth == 64 else 4), rows_together=True)
