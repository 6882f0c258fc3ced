"""Plain tables."""

from tofu.tables import table


def test_columns_are_aligned_and_nothing_trails():
    lines = table(
        ("name", "bytes", "kind"), [("a", "1,000", "long"), ("abcdef", "2", "")], right=[1]
    )
    assert lines == ["name    bytes  kind", "a       1,000  long", "abcdef      2"]


def test_a_long_cell_is_kept_whole():
    cell = "x" * 500 + "[bold]"
    assert table(("tensor", "dtype"), [(cell, "float32")])[1] == f"{cell}  float32"


def test_a_table_may_be_empty():
    assert table(("a", "bc"), []) == ["a  bc"]
