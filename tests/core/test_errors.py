import pytest

from fedade.core.errors import LONGEST, first_line


@pytest.mark.parametrize(
    ("said", "told"),
    [("", "RuntimeError"), (" \n", "RuntimeError"), ("\none\ntwo", "one"), ("x" * 999, "x" * LONGEST)],
)
def test_a_complaint_is_one_line_also_where_nothing_is_said(said, told):
    assert first_line(RuntimeError(said)) == told
