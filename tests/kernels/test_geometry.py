"""Windows say of every output which sources it needs, and by which tap: held against the convolution's definition."""

from collections import Counter

import pytest

from fedade.kernels.geometry import Image, Window, convolved, forward_window, input_gradient_window

SHAPES = [(kernel, stride, outputs) for kernel in (1, 3, 5) for stride in (1, 2) for outputs in (1, 2, 4)]
HEIGHT, WIDTH = 7, 6


def meetings(window: Window) -> Counter[tuple[int, int, int, int, int, int]]:
    """(output row, output column, source row, source column, tap row, tap column), as often as they occur."""
    found: Counter[tuple[int, int, int, int, int, int]] = Counter()
    for phase in range(window.phases):
        for u in range(window.group_rows):
            for g in range(window.group_columns):
                for p in range(window.outputs):
                    for i in range(window.rows):
                        for j in range(window.columns):
                            output = (window.phases * u + phase, window.outputs * g + p)
                            source = (
                                window.row_step * u - window.row_offset + i,
                                window.column_step * g - window.column_offset + j,
                            )
                            origin, per_phase, per_row = window.row_tap
                            row_tap = origin + per_phase * phase + per_row * i
                            origin, per_column, per_output = window.column_tap
                            column_tap = origin + per_column * j + per_output * p
                            inside = output[0] < window.output.height and output[1] < window.output.width
                            inside &= 0 <= source[0] < window.source.height and 0 <= source[1] < window.source.width
                            if inside and 0 <= row_tap < window.kernel and 0 <= column_tap < window.kernel:
                                found[(*output, *source, row_tap, column_tap)] += 1
    return found


def definition(kernel: int, stride: int) -> set[tuple[int, int, int, int, int, int]]:
    """y[u, v] needs x[stride * u + row - padding, stride * v + column - padding]."""
    padding = kernel // 2
    result = convolved(Image(HEIGHT, WIDTH, 1), 1, stride)
    return {
        (u, v, stride * u + row - padding, stride * v + column - padding, row, column)
        for u in range(result.height)
        for v in range(result.width)
        for row in range(kernel)
        for column in range(kernel)
        if 0 <= stride * u + row - padding < HEIGHT and 0 <= stride * v + column - padding < WIDTH
    }


@pytest.mark.parametrize(("kernel", "stride", "outputs"), SHAPES)
def test_forward_windows_are_the_convolution(kernel: int, stride: int, outputs: int) -> None:
    found = meetings(forward_window(Image(HEIGHT, WIDTH, 1), 1, kernel, stride, outputs))
    assert found == Counter(definition(kernel, stride))


@pytest.mark.parametrize(("kernel", "stride", "outputs"), SHAPES)
def test_input_gradient_windows_are_its_transpose(kernel: int, stride: int, outputs: int) -> None:
    found = meetings(input_gradient_window(Image(HEIGHT, WIDTH, 1), 1, kernel, stride, outputs * stride))
    assert found == Counter((x, y, u, v, *tap) for u, v, x, y, *tap in definition(kernel, stride))
