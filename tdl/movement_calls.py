"""Example calls of operators that move elements."""

from __future__ import annotations

from typing import Optional

from tofu.lang.example_calls import Case, In, back, case, real

__all__ = ["CASES"]

RESHAPES = (
    ((6, 4), (24,), "f0"),
    ((24,), (6, 4), None),
    ((6, 4, 2), (6, 8), None),
    ((6, 8), (6, 4, 2), None),
    ((6, 4), (6, 1, 4), None),
    ((6, 4, 6), (6, 2, 2, 6), None),
    ((4, 6), (2, 12), None),
    ((2, 6), (2, 6), "i0 i1"),
    ((1, 6, 4), (6, 4), None),
    ((6, 2, 2), (6, 4, 1), None),
)


def _some(*places: Optional[int]) -> dict[str, str]:
    """The attributes of a reshape_like of some dimensions."""
    return dict(zip(("lhs_begin", "lhs_end", "rhs_begin", "rhs_end"), map(str, places)))


def _movement() -> list[Case]:
    cases = []
    for old, new, expect in RESHAPES:
        cases.append(case("Reshape", In(old), attrs={"shape": str(new)}, expect=expect))
        like = {"forward": "reshape_like", "grads": "i0", "like": {1: "g0"}}
        cases.append(back("_backward_copy", "g0", In(old), In(new), **like))
        more = {"forward": "Reshape", "forward_attrs": {"shape": str(new)}}
        cases.append(back("_backward_reshape", "g0", In(old), **more))
        cases.append(case("reshape_like", In(old), In(new)))
    cases += [
        case("reshape_like", real(24, 2), real(6, 4, 3), attrs=_some(0, 1, 0, 2)),
        case("reshape_like", real(6, 4, 2), real(3, 24), attrs=_some(0, 2, 1, 2)),
        case("reshape_like", real(6, 8), real(3, 4, 2), attrs=_some(-1, None, 1, 3)),
        case("Reshape", real(6, 4, 2), attrs={"shape": "(0, -1)"}),
        case("Reshape", real(6, 4, 2), attrs={"shape": "(-1, 2)", "reverse": "True"}),
        case("Reshape", real(6, 4, 2), attrs={"shape": "(-3, -2)"}),
        case("_rnn_param_concat", real(6, 4), real(6, 2), attrs={"dim": "1", "num_args": "2"}),
        case("Flatten", real(6, 4, 2, 2)),
        case("Flatten", real(6, 4), expect="i0 i1"),
        back("_backward_copy", "g0", real(6, 4, 2), forward="Flatten"),
        case("expand_dims", real(6, 4), attrs={"axis": "1"}, expect="i0 i2"),
        case("expand_dims", real(6, 4), attrs={"axis": "-1"}, expect="i0 i1"),
        case("squeeze", real(6, 1, 4), expect="i0 i1"),
        case("squeeze", real(2, 1, 4), expect="i0 i1"),
        case("squeeze", real(2, 3), expect="i0 i1"),
        case("squeeze", real(6, 1, 4, 1), attrs={"axis": "(1,)"}, expect="i0 i1"),
        back("_backward_squeeze", "g0", real(6, 1, 4), forward="squeeze"),
        case("transpose", real(6, 4, 2), expect="i0 i1 i2"),
        case("transpose", real(6, 4, 2), attrs={"axes": "(1, 0, 2)"}, expect="i0 i1 i2"),
        case("SwapAxis", real(6, 4, 2), attrs={"dim1": "0", "dim2": "2"}, expect="i0 i1 i2"),
        back("_backward_SwapAxis", "g0", real(6, 4, 2), attrs={"dim1": "0", "dim2": "2"}),
        case("reverse", real(6, 4), attrs={"axis": "(1,)"}, expect="i0 i1"),
        back("_backward_reverse", "g0", real(6, 4), attrs={"axis": "(0,)"}, forward="reverse"),
        case("repeat", real(6, 4), attrs={"repeats": "2", "axis": "0"}),
        case("repeat", real(6, 4), attrs={"repeats": "2", "axis": "1"}),
        back("_backward_repeat", "g0", real(6, 4), attrs={"repeats": "2", "axis": "1"}),
    ]
    return cases


SLICES = (
    {"begin": "(0, 0)", "end": "(6, 4)"},
    {"begin": "(None, 0)", "end": "(None, 2)"},
    {"begin": "(3, None)", "end": "(9, None)"},
    {"begin": "(1, 2)", "end": "(7, None)"},
    {"begin": "(0,)", "end": "(6,)"},
    {"begin": "(0, 1)", "end": "(12, 5)", "step": "(2, 1)"},
    {"begin": "(-6, 0)", "end": "(None, -2)"},
    {"begin": "(None, None)", "end": "(None, None)", "step": "(-1, 1)"},
    {"begin": "[None]", "end": "6", "step": "None"},
)


def _slices() -> list[Case]:
    cases = []
    for attrs in SLICES:
        data = In((12, 6) if attrs != SLICES[0] else (6, 4))
        cases.append(case("slice", data, attrs=attrs))
        cases.append(back("_backward_slice", "g0", data, attrs=attrs))
    for attrs in (
        {"axis": "1", "begin": "0", "end": "None"},
        {"axis": "1", "begin": "2", "end": "6"},
        {"axis": "0", "begin": "0", "end": "6"},
        {"axis": "-1", "begin": "-4", "end": "None"},
        {"axis": "0", "begin": "0", "end": "-4"},
        {"axis": "0", "begin": "2", "end": "-4"},
    ):
        cases.append(case("slice_axis", real(12, 6), attrs=attrs))
        cases.append(back("_backward_slice_axis", "g0", real(12, 6), attrs=attrs))
    cases.append(case("slice_like", real(12, 6), real(6, 4)))
    first = {"axes": "(0,)"}
    cases.append(case("slice_like", real(12, 6), real(6, 4), attrs=first, expect="i0 i1"))
    for dim in (0, 1, 2):
        pieces = [[6, 4, 2], [6, 4, 2]]
        pieces[1][dim] += 6
        inputs = [In(tuple(p)) for p in pieces]
        attrs = {"dim": str(dim), "num_args": "2"}
        expect = " ".join(f"i{d}" for d in range(3) if d != dim)
        cases.append(case("Concat", *inputs, attrs=attrs, expect=expect))
        cases.append(back("_backward_Concat", "g0 i0 i1", *inputs, attrs=attrs, expect=expect))
        same = In((6, 4, 2)), In((6, 4, 2))
        for axis in (str(dim), str(dim - 3)):
            attrs = {"axis": axis, "num_args": "2"}
            cases.append(case("stack", *same, attrs=attrs))
            cases.append(back("_backward_stack", "g0", *same, attrs=attrs))
        split = {"axis": str(dim), "num_outputs": "2"}
        cases.append(case("SliceChannel", same[0], attrs=split, outputs=2, expect=expect))
        cases.append(back("_backward_SliceChannel", "g0 g1", same[0], attrs=split, outputs=2))
        squeezed = {**split, "squeeze_axis": "True"}
        data = In(tuple(2 if d == dim else n for d, n in enumerate((6, 4, 2))))
        cases.append(case("SliceChannel", data, attrs=squeezed, outputs=2, expect=expect))
        cases.append(back("_backward_SliceChannel", "g0 g1", data, attrs=squeezed, outputs=2))
    return cases


CASES = [*_movement(), *_slices()]
