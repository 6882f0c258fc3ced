"""Example calls of deconvolutions."""

from __future__ import annotations

import dataclasses

from tofu.lang.example_calls import Case, In, back, case, real

__all__ = ["CASES"]


DECONVOLUTIONS = (
    # data, weight, attributes, splittable without a bias, of the gradient
    ((4, 6, 5, 5), (6, 4, 3, 3), {"stride": "(2, 2)"}, "b co ci", "b ci co y0 y1 k0 k1"),
    ((4, 6, 6, 6), (6, 4, 4, 4), {"stride": "(2, 2)", "pad": "(1, 1)"}, "b co ci q0 q1", None),
    ((2, 2, 6, 4), (2, 4, 3, 3), {"pad": "(1, 1)"}, "b co ci q0 q1", "b ci co y0 y1 k0 k1"),
    (
        *((2, 2, 6, 5), (2, 4, 3, 2)),
        {"stride": "(2, 3)", "pad": "(1, 0)", "adj": "(1, 1)", "dilate": "(2, 1)"},
        *("b co ci q0 q1", None),
    ),
    ((2, 2, 6), (2, 4, 5), {"stride": "(3,)", "target_shape": "(18,)"}, "b co ci q0", None),
    ((2, 2, 6), (2, 4, 2), {"stride": "(2,)", "dilate": "(3,)"}, "b co ci q0", None),
    ((2, 2, 12), (2, 4, 2), {"stride": "(4,)", "pad": "(1,)", "adj": "(3,)"}, None, None),
)


def _deconvolution() -> list[Case]:
    cases = []
    for data, weight, more, expect, backward in DECONVOLUTIONS:
        for bias in ((), (real(weight[1]),)):
            attrs = {"kernel": str(tuple(weight[2:])), "num_filter": str(weight[1]), **more}
            attrs["no_bias"] = str(not bias)
            inputs = call_inputs = (In(data), In(weight), *bias)
            if {"stride", "dilate"} <= set(attrs):  # MXNet's results are wrong in other types
                call_inputs = tuple(dataclasses.replace(each, dtype="float32") for each in inputs)
            cases.append(case("Deconvolution", *call_inputs, attrs=attrs, expect=expect))
            reads = "g0 i0 i1 i2" if bias else "g0 i0 i1"
            expected = "b ci co" if bias else backward
            gradient = back("_backward_Deconvolution", reads, *inputs, attrs=attrs, expect=expected)
            cases.append(gradient)
    return cases


def _depthwise() -> list[Case]:
    attrs = {"kernel": "(3, 3)", "num_filter": "6", "num_group": "6", "pad": "(1, 1)"}
    inputs = real(4, 6, 4, 5), real(6, 1, 3, 3)
    more = {**attrs, "stride": "(2, 1)", "adj": "(1, 0)"}
    return [
        case("Deconvolution", *inputs, attrs=attrs, expect="b co q0 q1"),
        case("Deconvolution", *inputs, attrs=more, expect="b co q0 q1"),
        case("Deconvolution", *inputs, attrs={**more, "adj": "(0, 0)"}, expect="b co q1"),
    ]


def _grouped() -> list[Case]:
    attrs = {"kernel": "(3, 2)", "num_filter": "6", "num_group": "2", "stride": "(2, 1)"}
    inputs = real(4, 8, 3, 5), real(8, 3, 3, 2)
    more = {**attrs, "no_bias": "False", "pad": "(1, 0)"}
    single = tuple(dataclasses.replace(each, dtype="float32") for each in (*inputs, real(6)))
    return [
        case("Deconvolution", *inputs, attrs=attrs, expect="b g q1"),
        case("Deconvolution", *single, attrs=more, expect="b g q1"),
    ]


CASES = [*_deconvolution(), *_depthwise(), *_grouped()]
