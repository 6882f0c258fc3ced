"""Example calls of operators whose indices are data."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, case, ints, real

__all__ = ["CASES"]


def _rows_and_choices() -> list[Case]:
    cases = []
    table = {"input_dim": "10", "output_dim": "4"}
    for shape, expect in (((6,), "i0 d"), ((2, 6), "i0 i1 d")):
        inputs = ints(10, *shape), real(10, 4)
        cases.append(case("Embedding", *inputs, attrs=table, expect=expect))
        cases.append(
            back("_backward_Embedding", "g0 i0", *inputs, attrs=table, expect=expect, hide=(0,))
        )
    for axis, mode in (("0", "clip"), ("1", "wrap"), ("-1", "clip")):
        inputs = real(6, 4, 6), ints(4, 2, 4)
        attrs = {"axis": axis, "mode": mode}
        cases.append(case("take", *inputs, attrs=attrs))
        cases.append(back("_backward_take", "g0 i1", *inputs, attrs=attrs))
    for axis, keep, index in (
        ("-1", "False", (6, 2)),
        ("1", "False", (6, 4)),
        ("1", "True", (6, 1, 4)),
        ("1", "False", (6, 1, 4)),
    ):
        data = real(6, 2, 4)
        inputs = data, ints(2, *index)
        attrs = {"axis": axis, "keepdims": keep}
        cases.append(case("pick", *inputs, attrs=attrs))
        cases.append(back("_backward_pick", "g0 i1", *inputs, attrs=attrs, grads="i0"))
    cases += [
        case("one_hot", ints(4, 6), attrs={"depth": "4"}, expect="i0"),
        case("one_hot", ints(4, 6, 2), attrs={"depth": "4"}, expect="i0 i1"),
    ]
    for condition in ((6, 4), (6,)):
        inputs = In(condition, "flag"), real(6, 4), real(6, 4)
        cases.append(case("where", *inputs, expect="i0 i1"))
        cases.append(back("_backward_where", "g0 i0", *inputs, grads="i1 i2", expect="i0 i1"))
    return cases


def _places() -> list[Case]:
    data, places = real(3, 4, 6, 2), ints(3, 2, 6, 2)
    once = In((1, 3), "permutation")
    shape = {"shape": "(3, 6, 2)"}
    columns, row = real(3, 6, 2), In((1,), "int", 3, "int32")
    return [
        case("batch_take", real(6, 4), In((6,), "int", 4, "int32"), expect="n"),
        case("gather_nd", data, places, expect="s t c d", fixed=True),
        back(
            "_backward_gather_nd",
            "g0 i1",
            *(data, places),
            grads="i0",
            attrs={"shape": "(3, 4, 6, 2)"},
            forward_attrs={},
            expect="s t c d",
            fixed=True,
        ),
        case("scatter_nd", columns, once, attrs=shape, expect="b c"),
        case(
            "_scatter_set_nd",
            *(columns, columns, once),
            attrs=shape,
            imperative=True,
            shaped=(0,),
            in_place=True,
            expect="b c",
        ),
        case("_contrib_index_copy", columns, row, real(1, 6, 2), expect="b c"),
        back(
            "_contrib_backward_index_copy",
            "g0 i0 i1 i2",
            *(columns, row, real(1, 6, 2)),
            forward="_contrib_index_copy",
            hide=(1,),
            dtype="float32",
            expect="b c",
        ),
    ]


CASES = [*_rows_and_choices(), *_places()]
