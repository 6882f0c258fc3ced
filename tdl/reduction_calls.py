"""Example calls of reductions."""

from __future__ import annotations

from itertools import product

from tofu.lang.example_calls import Case, In, back, case, real

__all__ = ["CASES"]


AXES = (
    {},
    {"axis": "1"},
    {"axis": "(0, 2)"},
    {"axis": "1", "keepdims": "True"},
    {"axis": "-1", "exclude": "True"},
    {"axis": "()", "keepdims": "True"},
)


def _reduction() -> list[Case]:
    cases = []
    data = real(6, 4, 2)
    for attrs, op in product(AXES, ("sum", "max", "min", "prod", "nansum", "mean")):
        if op in ("prod", "nansum", "min") and len(attrs) > 1:
            continue
        expect = "i0 i1 i2" if op != "mean" else None
        cases.append(case(op, data, attrs=attrs, expect=expect))
        reads = "g0" if op in ("sum", "mean") else "g0 i0 o0"
        expect = "i0 i1 i2" if op != "mean" else None
        cases.append(back(f"_backward_{op}", reads, data, attrs=attrs, expect=expect))
    cases += [case("mean", data, attrs={"axis": "(1, 2)"}, expect="i0")]
    for attrs in ({"ord": "2", "axis": "1"}, {"ord": "1", "axis": "1"}, {"ord": "2"}):
        cases.append(case("norm", data, attrs=attrs))
    for attrs in ({"ord": "2", "axis": "1"}, {"ord": "1", "axis": "1"}):
        cases.append(back("_backward_norm", "g0 i0 o0", data, attrs=attrs))
    for op in ("argmax", "argmin"):
        cases.append(case(op, data, attrs={"axis": "1"}, expect="i0 i2"))
        cases.append(case(op, data, attrs={"axis": "1", "keepdims": "True"}, expect="i0 i2"))
    return cases


def _of_any_shape() -> list[Case]:
    return [
        case("argmax_channel", real(6, 4), expect="a"),
        case("nanprod", real(6, 4), attrs={"axis": "1"}, expect="i0 i1"),
        back("_backward_nanprod", "g0 i0 o0", real(6, 4), attrs={"axis": "1"}),
        case("all_finite", real(6, 4), dtype="float32", expect="t0_0 t0_1"),
        case(
            "multi_all_finite",
            *(real(6, 4), real(6)),
            attrs={"num_arrays": "2"},
            dtype="float32",
            expect="t0_0 t0_1 t1_0",
        ),
        case("_npx_constraint_check", In((6, 4), "count", 1, "bool"), numpy=True, imperative=True),
        case("_contrib_allclose", real(6, 4), real(6, 4), expect="t0_0 t0_1"),
    ]


CASES = [*_reduction(), *_of_any_shape()]
