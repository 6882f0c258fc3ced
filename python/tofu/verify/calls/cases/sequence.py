"""Samples of sequences of unequal length, ordering and indexing by data."""

from __future__ import annotations

from tofu.verify.calls.case import Case, In
from tofu.verify.calls.samples import back, case, ints, real

__all__ = ["CASES"]


def _sequences() -> list[Case]:
    used, cases = {"use_sequence_length": "True"}, []
    for op in ("SequenceMask", "SequenceReverse", "SequenceLast"):
        for axis in ("0", "1") if op != "SequenceReverse" else ("0",):
            data = real(4, 6, 2) if axis == "0" else real(6, 4, 2)
            lengths = In((6,), "count", 3)
            expect = "b c" if axis == "0" else "a c"
            attrs = {"axis": axis}
            all_free = "a b c" if op == "SequenceMask" else expect
            plain = {"attrs": attrs, "expect": all_free}
            cases.append(case(op, data, **plain))
            cases.append(back(f"_backward_{op}", "g0", data, **plain))
            own = {"attrs": {**attrs, **used}, "expect": expect}
            cases.append(case(op, data, lengths, **own))
            cases.append(back(f"_backward_{op}", "g0 i1", data, lengths, skip=(1,), **own))
    return cases


def _ordering() -> list[Case]:
    cases = []
    for axis, expect in (("1", "a c"), ("-1", "a b"), ("0", "b c")):
        data, own = real(6, 4, 2), {"axis": axis}
        more = {"outputs": 2, "expect": expect}
        cases.append(case("sort", data, attrs=own, **more))
        cases.append(case("argsort", data, attrs=own, expect=expect))
        for kind in ("value", "both"):
            attrs = {**own, "k": "2", "ret_typ": kind}
            cases.append(case("topk", data, attrs=attrs, **more))
            cases.append(back("_backward_topk", "g0 o0 o1", data, attrs=attrs, **more))
        for kind in ("indices", "mask"):
            attrs = {**own, "k": "2", "ret_typ": kind}
            cases.append(case("topk", data, attrs=attrs, expect=expect))
    return cases


def _indexing() -> list[Case]:
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


CASES = [*_sequences(), *_ordering(), *_indexing()]
