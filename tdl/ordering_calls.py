"""Example calls of sorting and choosing along an axis."""

from __future__ import annotations

from tofu.lang.example_calls import Case, back, case, real

__all__ = ["CASES"]


def _ordering() -> list[Case]:
    cases = []
    for axis, expect in (("1", "a c"), ("-1", "a b"), ("0", "b c")):
        data, axis_attrs = real(6, 4, 2), {"axis": axis}
        more = {"outputs": 2, "expect": expect}
        cases.append(case("sort", data, attrs=axis_attrs, **more))
        cases.append(case("argsort", data, attrs=axis_attrs, expect=expect))
        for kind in ("value", "both"):
            attrs = {**axis_attrs, "k": "2", "ret_typ": kind}
            cases.append(case("topk", data, attrs=attrs, **more))
            cases.append(back("_backward_topk", "g0 o0 o1", data, attrs=attrs, **more))
        for kind in ("indices", "mask"):
            attrs = {**axis_attrs, "k": "2", "ret_typ": kind}
            cases.append(case("topk", data, attrs=attrs, expect=expect))
    return cases


CASES = _ordering()
