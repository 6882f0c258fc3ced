"""Example calls of NumPy's reductions, statistics and scans, and of their gradients."""

from __future__ import annotations

from typing import Any

from tofu.lang.example_calls import Case, In, back, case, positive, real

__all__ = ["CASES"]

_ALL = "i0 i1 i2"
_AXES: tuple[tuple[dict[str, str], str], ...] = (
    ({}, ""),
    ({"axis": "1"}, "i0 i2"),
    ({"axis": "(0, 2)"}, "i1"),
    ({"axis": "(-1,)", "keepdims": "True"}, "i0 i1"),
    ({"axis": "()"}, _ALL),
    ({"keepdims": "True"}, ""),
)


def _reductions() -> list[Case]:
    cases = []
    data = real(6, 4, 2)
    for name in ("sum", "prod", "max", "min"):
        for attrs, _ in _AXES if name in ("sum", "max") else _AXES[:2]:
            more: dict[str, Any] = {"attrs": attrs, "numpy": True, "expect": _ALL}
            cases.append(case(f"_np_{name}", data, **more))
            reads = "g0" if name == "sum" else "g0 i0 o0"
            backward = f"_backward_np_{name}"
            cases.append(back(backward, reads, data, forward=f"_np_{name}", **more))
    flags = {"axis": "1", "dtype": "bool"}
    cases.append(case("_np_sum", In((6, 4, 2), "flag"), attrs=flags, numpy=True, expect="i0 i2"))
    cut = {"axis": "1", "dtype": "int32"}
    cases.append(case("_np_sum", data, attrs=cut, numpy=True, expect="i0 i2"))
    for name in ("_np_any", "_np_all", "_npi_mean", "_npi_std", "_npi_var"):
        outputs = 2 if name in ("_npi_std", "_npi_var") else 1
        for attrs, expect in _AXES:
            options: dict[str, Any] = {"attrs": attrs, "numpy": True, "expect": expect}
            cases.append(case(name, data, outputs=outputs, **options))
            if name == "_npi_mean":
                cases.append(back("_backward_np_mean", "g0", data, forward=name, **options))
    for name in ("_npi_argmax", "_npi_argmin"):
        for attrs, expect in (_AXES[0], _AXES[1], ({"axis": "1", "keepdims": "True"}, "i0 i2")):
            cases.append(case(name, data, attrs=attrs, numpy=True, expect=expect))
    cases.append(case("_np_sum", real(), numpy=True, expect=""))
    return cases


def _statistics() -> list[Case]:
    cases = []
    data = real(6, 4, 2)
    for attrs, expect in (_AXES[0], _AXES[1]):
        more: dict[str, Any] = {"numpy": True, "outputs": 2}
        for weights, weighted in (((6, 4, 2), {}), ((4,), {}), (None, {"weighted": "False"})):
            if weights == (4,) and not attrs:
                continue
            inputs = [data] if weights is None else [data, positive(*weights)]
            call_attrs = {**attrs, **weighted}
            cases.append(case("_npi_average", *inputs, attrs=call_attrs, expect=expect, **more))
            reads = "g0 z1 i0 o0 o1" if weights is None else "g0 z1 i0 i1 o0 o1"
            named: dict[str, Any] = {"forward": "_npi_average", "attrs": call_attrs, **more}
            cases.append(back("_backward_np_average", reads, *inputs, **named))
        plain = {**attrs, "q_scalar": "30"}
        cases.append(case("_npi_percentile", data, attrs=plain, numpy=True, expect=expect))
        percentages = In((6,), "int", 100)
        several = f"q0 {expect}".strip()
        cases.append(
            case("_npi_percentile", data, percentages, attrs=attrs, numpy=True, expect=several)
        )
    for attrs, expect in (
        ({"ord": "2", "axis": "(1,)"}, "i0 i2"),
        ({"ord": "1", "axis": "(0,)", "keepdims": "True"}, "i1 i2"),
        ({"flag": "-2"}, ""),
    ):
        more = {"attrs": attrs, "numpy": True, "outputs": 4, "skip": (1, 2, 3)}
        cases.append(case("_npi_norm", data, expect=expect, **more))
        reads = "g0 z1 z2 z3 i0 o0 o1 o2 o3"
        cases.append(back("_backward_npi_norm", reads, data, forward="_npi_norm", **more))
    return cases


def _diagonals_and_scans() -> list[Case]:
    cases = []
    for shape, attrs in (
        ((6, 6), {}),
        ((2, 6, 4), {"axis1": "1", "axis2": "2"}),
        ((6, 4, 6), {"offset": "1", "axis1": "0", "axis2": "2"}),
        ((6, 4, 6), {"offset": "-1", "axis1": "-1", "axis2": "0"}),
    ):
        more: dict[str, Any] = {"attrs": attrs, "numpy": True}
        cases.append(case("_np_trace", real(*shape), **more))
        cases.append(back("_backward_np_trace", "g0", real(*shape), forward="_np_trace", **more))
    for attrs, expect in (({"axis": "1"}, "i0 i2"), ({"axis": "2"}, "i0 i1"), ({}, "")):
        more = {"attrs": attrs, "numpy": True, "expect": expect}
        cases.append(case("_np_cumsum", real(6, 4, 2), **more))
        scan = "_backward_np_cumsum"
        cases.append(back(scan, "g0", real(6, 4, 2), forward="_np_cumsum", **more))
    return cases


CASES = [*_reductions(), *_statistics(), *_diagonals_and_scans()]
