"""Example calls of blocks, patches, copies, diagonals, pieces and counts."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, case, ints, positive, real

__all__ = ["CASES"]


def _blocks() -> list[Case]:
    kernel = {"kernel": "(2, 2)", "stride": "(1, 1)"}
    output = {"output_size": "(4, 3)", **kernel}
    data, columns = real(4, 6, 4, 3), real(4, 24, 6)
    return [
        case("space_to_depth", real(2, 3, 12, 4), attrs={"block_size": "2"}, expect="n y x"),
        case("depth_to_space", real(2, 12, 6, 4), attrs={"block_size": "2"}, expect="n y x"),
        case("im2col", data, attrs=kernel, expect="n c"),
        back("_backward_im2col", "g0", data, attrs=kernel, expect="n c"),
        case("col2im", columns, attrs=output, expect="n c"),
        back("_backward_col2im", "g0", columns, attrs=output, expect="n c"),
    ]


def _copies() -> list[Case]:
    cases = []
    for reps, expect in (
        ("(3, 2)", "r0 r1"),
        ("(2,)", "i0 r1"),
        ("2", "i0 r1"),
        ("(2, 1, 3)", "r0 r2 i1"),
    ):
        more = {"attrs": {"reps": reps}, "expect": expect}
        cases.append(case("tile", real(6, 4), **more))
        cases.append(back("_backward_tile", "g0", real(6, 4), **more))
    return cases


def _diagonals() -> list[Case]:
    cases = []
    for shape, attrs, expect in (
        ((6,), {}, ""),
        ((6, 6), {"k": "1"}, ""),
        ((6, 4, 4), {"axis1": "1", "axis2": "2"}, "a"),
        ((4, 6, 4), {"axis1": "0", "axis2": "2", "k": "-1"}, "b"),
    ):
        cases.append(case("diag", In(shape), attrs=attrs, expect=expect))
        cases.append(back("_backward_diag", "g0", In(shape), attrs=attrs, expect=expect))
    return cases


def _pieces() -> list[Case]:
    cases = []
    for attrs, outputs in (
        ({"axis": "1", "indices": "(0, 1, 3)"}, 3),
        ({"axis": "1", "sections": "2", "indices": "()"}, 2),
        ({"axis": "1", "sections": "4", "indices": "()", "squeeze_axis": "True"}, 4),
    ):
        more = {"attrs": attrs, "outputs": outputs, "expect": "a c"}
        cases.append(case("_split_v2", real(6, 4, 2), **more))
        reads = " ".join(f"g{k}" for k in range(outputs))
        more["forward"] = "_split_v2"
        cases.append(back("_split_v2_backward", reads, real(6, 4, 2), **more))
    slices = {"begin": "(None, 1)", "end": "(None, 3)"}
    cases += [
        case("_slice_assign", real(6, 4), real(6, 2), attrs=slices, expect="a"),
        case("_slice_assign_scalar", real(6, 4), attrs={**slices, "scalar": "3"}, expect="a"),
        back("_backward_slice_like", "g0", real(6, 6, 4), real(6, 3, 4), expect="a c"),
    ]
    return cases


def _counts() -> list[Case]:
    bins = {"bin_cnt": "4", "range": "(0.0, 1.0)"}
    edges = In((4,), "edges")
    place = ints(3, 2, 6)
    return [
        case("_histogram", positive(6, 4), attrs=bins, outputs=2, expect="a b"),
        case("_histogram", positive(6, 4), edges, outputs=2, expect="a b"),
        case("_ravel_multi_index", place, attrs={"shape": "(3, 4)"}, expect="b"),
        case("_unravel_index", ints(12, 6), attrs={"shape": "(3, 4)"}, expect="a"),
        case("shape_array", real(6, 4), expect=""),
        case("size_array", real(6, 4), expect=""),
        case("_linspace", attrs={"start": "0", "stop": "1", "num": "6"}, expect=""),
    ]


CASES = [*_blocks(), *_copies(), *_diagonals(), *_pieces(), *_counts()]
