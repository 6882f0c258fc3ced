"""Example calls of matrix products."""

from __future__ import annotations

from itertools import product

from tofu.lang.example_calls import Case, In, back, case, real

__all__ = ["CASES"]


def _linear() -> list[Case]:
    cases = []
    weight, bias = real(6, 12), real(6)
    for data, flatten in (
        (real(4, 12), "True"),
        (real(4, 2, 12), "False"),
        (real(4, 3, 2, 2), "True"),
    ):
        for no_bias in ("True", "False"):
            attrs = {"num_hidden": "6", "flatten": flatten, "no_bias": no_bias}
            inputs = (data, weight) if no_bias == "True" else (data, weight, bias)
            cases.append(case("FullyConnected", *inputs, attrs=attrs))
            cases.append(back("_backward_FullyConnected", "g0 i0 i1", *inputs, attrs=attrs))
    for no_bias in ("True", "False"):
        attrs = {"num_hidden": "6", "no_bias": no_bias}
        inputs = real(4), real(6, 1), *((bias,) if no_bias == "False" else ())
        cases.append(case("FullyConnected", *inputs, attrs=attrs, expect="b0 o"))
        cases.append(back("_backward_FullyConnected", "g0 i0 i1", *inputs, attrs=attrs))
    named = {"num_hidden": "6", "flatten": "0"}
    cases.append(case("FullyConnected", real(4, 12), weight, bias, attrs=named, expect="b0 o i"))
    for ta, tb in product(("True", "False"), repeat=2):
        attrs = {"transpose_a": ta, "transpose_b": tb}
        lhs = real(6, 4) if ta == "True" else real(4, 6)
        rhs = real(2, 6) if tb == "True" else real(6, 2)
        cases.append(case("dot", lhs, rhs, attrs=attrs, expect="i0 j0 k"))
        cases.append(back("_backward_dot", "g0 i0 i1", lhs, rhs, attrs=attrs, expect="i0 j0 k"))
        batched = In((2, *lhs.shape)), In((2, *rhs.shape))
        cases.append(case("batch_dot", *batched, attrs=attrs, expect="b0 i j k"))
    cases += [
        case("dot", real(6), real(6), expect="k"),
        case("dot", real(2, 4, 6), real(6, 3), expect="i0 i1 j0 k"),
        case("dot", real(4, 6), real(6, 2, 3), expect="i0 j0 j1 k"),
        case("batch_dot", real(2, 3, 4, 6), real(2, 3, 6, 2), expect="b0 b1 i j k"),
    ]
    return cases


def _second_gradient() -> Case:
    return case(
        "_backward_backward_FullyConnected",
        *(real(4, 6), real(6, 6), real(4, 6)),
        attrs={"num_hidden": "6", "no_bias": "True"},
        outputs=3,
        imperative=True,
        shaped=(2, 0, 1),
    )


CASES = [*_linear(), _second_gradient()]
