"""Convolutions as products of windows: which piece of the source each output needs, and by which tap.

A *group* is a run of `outputs` neighbouring columns of one output row. What it needs of one source row is a window of
`columns` neighbouring columns, which lie side by side in channels-last memory. So one window row is one contiguous
stretch, and a convolution is a matrix product of windows (`rows x columns x channels` long) with weights that are zero
where a column does not meet an output. Longer groups read the source less often and multiply by more zeros.

The gradient with respect to the input is such a product as well. With stride s, its output rows fall into s phases that
meet different taps.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Image:
    """Height, width and channels, in the order of memory."""

    height: int
    width: int
    channels: int

    @property
    def size(self) -> int:
        """Numbers per image."""
        return self.height * self.width * self.channels


@dataclass(frozen=True)
class Window:
    """Where groups of outputs find their sources.

    Group (u, g) in phase a covers output row `phases * u + a` and columns `outputs * g + p`. Its window begins at
    source row `row_step * u - row_offset` and column `column_step * g - column_offset`. Source (i, j) of the window
    meets output p by the tap in row `row_tap[0] + row_tap[1] * a + row_tap[2] * i` and in column
    `column_tap[0] + column_tap[1] * j + column_tap[2] * p`, if the kernel has it.
    """

    source: Image
    output: Image
    kernel: int
    phases: int
    outputs: int
    rows: int
    columns: int
    row_step: int
    row_offset: int
    column_step: int
    column_offset: int
    row_tap: tuple[int, int, int]
    column_tap: tuple[int, int, int]

    @property
    def group_rows(self) -> int:
        """Rows of groups per image and phase."""
        return -(-self.output.height // self.phases)

    @property
    def group_columns(self) -> int:
        """Groups per row."""
        return -(-self.output.width // self.outputs)

    @property
    def groups(self) -> int:
        """Groups per image and phase."""
        return self.group_rows * self.group_columns

    @property
    def breadth(self) -> int:
        """Numbers that a group has: its columns times the output's channels."""
        return self.outputs * self.output.channels

    @property
    def stretch(self) -> int:
        """Numbers that a group needs of one source row."""
        return self.columns * self.source.channels


def convolved(source: Image, channels: int, stride: int) -> Image:
    """The output of a convolution with an odd kernel and padding `kernel // 2`."""
    return Image(-(-source.height // stride), -(-source.width // stride), channels)


def forward_window(source: Image, channels: int, kernel: int, stride: int, outputs: int) -> Window:
    """y[u, v] = sum over taps of x[stride * u + row - padding, stride * v + column - padding]."""
    padding = kernel // 2
    return Window(
        source=source,
        output=convolved(source, channels, stride),
        kernel=kernel,
        phases=1,
        outputs=outputs,
        rows=kernel,
        columns=stride * (outputs - 1) + kernel,
        row_step=stride,
        row_offset=padding,
        column_step=stride * outputs,
        column_offset=padding,
        row_tap=(0, 0, 1),
        column_tap=(0, 1, -stride),
    )


def input_gradient_window(image: Image, channels: int, kernel: int, stride: int, outputs: int) -> Window:
    """dx[s * u + a] = sum over taps of dz[u + i], where the tap is a + padding - s * i; `image` is that of x.

    `outputs` is a multiple of the stride, so that every group begins at the same phase of the columns.
    """
    padding = kernel // 2
    offset = (kernel - 1 - padding) // stride
    return Window(
        source=convolved(image, channels, stride),
        output=image,
        kernel=kernel,
        phases=stride,
        outputs=outputs,
        rows=(stride - 1 + padding) // stride + offset + 1,
        columns=(outputs - 1 + padding) // stride + offset + 1,
        row_step=1,
        row_offset=offset,
        column_step=outputs // stride,
        column_offset=offset,
        row_tap=(padding + stride * offset, 1, -stride),
        column_tap=(padding + stride * offset, -stride, 1),
    )
