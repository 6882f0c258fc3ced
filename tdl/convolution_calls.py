"""Example calls of convolutions and poolings."""

from __future__ import annotations

import dataclasses
from itertools import product

from tofu.lang.example_calls import Case, In, back, case, real

__all__ = ["CASES"]


CONVOLUTIONS = (
    # data, weight, attributes, splittable forward, backward
    ((4, 6, 8, 8), (4, 6, 3, 3), {"pad": "(1, 1)"}, "b co y0 y1 ci k0 k1", "b ci co"),
    ((4, 6, 8, 8), (4, 6, 3, 3), {}, "b co y0 y1 ci k0 k1", "b ci co"),
    ((2, 2, 9, 9), (4, 2, 3, 3), {"stride": "(2, 2)", "pad": "(1, 1)"}, None, None),
    ((2, 2, 12, 8), (4, 2, 2, 2), {"stride": "(2, 2)"}, "b co y0 y1 ci k0 k1", None),
    ((2, 2, 9, 9), (4, 2, 3, 2), {"dilate": "(2, 1)", "pad": "(2, 1)"}, None, None),
    ((4, 6, 6, 6), (4, 6, 1, 1), {}, "b co y0 y1 ci", "b ci co y0 y1"),
    ((4, 6, 12, 12), (4, 6, 1, 1), {"stride": "(2, 2)"}, "b co y0 y1 ci", None),
    ((4, 6, 8, 8), (6, 1, 3, 3), {"pad": "(1, 1)", "num_group": "6"}, None, "b co"),
    ((4, 12, 6, 6), (12, 2, 3, 3), {"pad": "(1, 1)", "num_group": "6"}, "b g y0 y1 k0 k1", "b g"),
    ((4, 6, 6, 5), (6, 2, 3, 2), {"stride": "(2, 1)", "num_group": "3"}, "b g y0 y1 k0 k1", "b g"),
    ((4, 4, 6, 6), (8, 2, 1, 1), {"num_group": "2"}, "b g y0 y1", "b"),
    ((4, 2, 9), (6, 1, 3), {"dilate": "(2,)", "num_group": "2"}, "b g y0 k0", "b g"),
    ((4, 6, 12), (4, 6, 3), {"pad": "(1,)"}, "b co y0 ci k0", "b ci co"),
    ((2, 2, 4, 4, 4), (2, 2, 3, 3, 3), {"pad": "(1, 1, 1)"}, None, "b ci co"),
    ((2, 2, 6, 6), (2, 2, 3, 3), {"pad": "(2, 0)"}, None, None),
    ((2, 2, 6, 6), (2, 2, 3, 3), {"pad": "(3, 3)", "stride": "(3, 1)"}, None, None),
)


def _convolution() -> list[Case]:
    cases = []
    for data, weight, more, expect, backward in CONVOLUTIONS:
        for no_bias in ("True", "False"):
            kernel = str(tuple(weight[2:]))
            attrs = {"kernel": kernel, "num_filter": str(weight[0]), "no_bias": no_bias, **more}
            inputs = [In(data), In(weight)]
            reads = "g0 i0 i1"
            if no_bias == "False":
                inputs.append(real(weight[0]))
                reads += " i2"
            cases.append(case("Convolution", *inputs, attrs=attrs, expect=expect))
            cases.append(
                back("_backward_Convolution", reads, *inputs, attrs=attrs, expect=backward)
            )
    return cases


POOLINGS = (
    ({"kernel": "(2, 2)", "stride": "(2, 2)"}, "b c y0 y1"),
    ({"kernel": "(3, 3)", "stride": "(2, 2)", "pad": "(1, 1)"}, "b c y0 y1"),
    ({"kernel": "(3, 3)", "stride": "(1, 1)", "pad": "(1, 1)"}, "b c y0 y1"),
    ({"kernel": "(3, 2)"}, "b c y0 y1"),
    ({"kernel": "(3, 3)", "stride": "(2, 2)", "pooling_convention": "full"}, "b c"),
    ({"kernel": "(1, 1)", "global_pool": "True"}, None),
    ({"global_pool": "True"}, None),
)


def _pooling() -> list[Case]:
    cases = []
    for (attrs, expect), kind in product(POOLINGS, ("max", "avg", "sum")):
        attrs = {**attrs, "pool_type": kind}
        # A kernel of known rank gives the maximum a hidden workspace on the CPU.
        outputs = 2 if kind == "max" and "kernel" in attrs else 1
        size = 9 if attrs["pool_type"] == "max" else 12
        data = In((4, 6, size, 12))
        common = {"outputs": outputs, "skip": (1,)[: outputs - 1]}
        cases.append(case("Pooling", data, attrs=attrs, expect=expect, **common))
        cases.append(case("Pooling", data, attrs=attrs, expect=expect, dtype="float32", **common))
        reads = "g0 z1 i0 o0 o1" if outputs == 2 else "g0 i0 o0"
        gradient = back("_backward_Pooling", reads, data, attrs=attrs, outputs=outputs)
        if "stride" in attrs and attrs["kernel"] == attrs["stride"]:  # side by side
            expect = "b c q0 q1" if size == 12 else "b c q1"
        else:
            expect = "b c"
        cases.append(dataclasses.replace(gradient, expect=expect))
    uncounted = {**POOLINGS[1][0], "pool_type": "avg", "count_include_pad": "False"}
    unpadded = {**uncounted, "kernel": "(2, 2)", "stride": "(2, 2)", "pad": "(0, 0)"}
    cases += [
        case("Pooling", real(4, 6, 8, 8), attrs=uncounted, expect="b c"),
        case("Pooling", real(4, 6, 8, 8), attrs=unpadded, expect="b c y0 y1"),
        case("Pooling", real(4, 6, 12), attrs={"kernel": "(3,)", "pool_type": "avg"}),
        case("Pooling", real(2, 2, 4, 6, 4), attrs={"kernel": "(2, 2, 2)", "pool_type": "avg"}),
    ]
    return cases


def _gradient_by_parameters() -> Case:
    """The gradients that remain if tofu.mx computes the data's gradient in another way."""
    inputs = real(2, 4, 9, 8), real(6, 4, 3, 3), real(6)
    attrs = {"kernel": "(3, 3)", "num_filter": "6", "pad": "(1, 0)", "stride": "(2, 1)"}
    return back(
        "_backward_Convolution",
        "g0 i0 i1 i2",
        *inputs,
        attrs={**attrs, "no_bias": "False", "__tofu_gradients__": "parameters"},
        hide=(0,),
        expect="b ci co y0 y1 k0 k1",
    )


def _legacy() -> list[Case]:
    image, filters = real(4, 6, 8, 6), real(6, 6, 3, 3)
    cases = []
    for bias in ((), (real(6),)):
        attrs = {"kernel": "(3, 3)", "num_filter": "6", "no_bias": str(not bias)}
        attrs["pad"] = "(1, 1)"
        inputs = (image, filters, *bias)
        cases.append(case("Convolution_v1", *inputs, attrs=attrs))
        cases.append(back("_backward_Convolution_v1", "g0 i0 i1", *inputs, attrs=attrs))
    for kind in ("max", "avg", "sum"):
        attrs = {"kernel": "(2, 2)", "stride": "(2, 2)", "pool_type": kind}
        cases.append(case("Pooling_v1", image, attrs=attrs, expect="b c y0 y1"))
        reads = "g0 i0 o0"
        cases.append(back("_backward_Pooling_v1", reads, image, attrs=attrs, expect="b c q0 q1"))
    return cases


CASES = [*_legacy(), *_convolution(), _gradient_by_parameters(), *_pooling()]
