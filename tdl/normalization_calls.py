"""Example calls of normalizations."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, case, positive, real

__all__ = ["CASES"]


def _normalization() -> list[Case]:
    cases = []
    states = positive(6), real(6), real(6), positive(6)
    for shape, axis in (((4, 6), "1"), ((4, 6, 3, 2), "1"), ((2, 3, 6), "-1")):
        attrs = {"axis": axis, "fix_gamma": "False"}
        inputs = (In(shape), *states)
        more = {"attrs": attrs, "outputs": 3, "expect": "c"}
        cases.append(case("BatchNorm", *inputs, **more))
        global_stats = {"attrs": {**attrs, "use_global_stats": "True"}, "outputs": 3}
        every = " ".join("c" if d == int(axis) % len(shape) else f"i{d}" for d in range(len(shape)))
        cases.append(case("BatchNorm", *inputs, **global_stats, expect=every))
        reads = "g0 o1 o2 i0 i1 i2 i3 i4"
        cases.append(back("_backward_BatchNorm", reads, *inputs, grads="i0 i1 i2", **more))
    single = {"dtype": "float32", "expect": "c"}
    image, attrs = real(4, 6, 2, 2), {"fix_gamma": "False"}
    inputs = image, *states
    for op in ("_contrib_SyncBatchNorm", "BatchNorm_v1"):
        op_attrs, single["expect"] = attrs, "c"
        if op != "BatchNorm_v1":
            # MXNet keeps one buffer for each key in a process.
            op_attrs, single["expect"] = {**attrs, "key": "verify"}, ""
        cases.append(case(op, *inputs, attrs=op_attrs, outputs=3, **single))
        more = {"grads": "i0 i1 i2", "attrs": op_attrs, "outputs": 3, **single}
        cases.append(back(f"_backward_{op}", "g0 o1 o2 i0 i1 i3 i4", *inputs, forward=op, **more))
    op, gradient = "_contrib_BatchNormWithReLU", "_backward_contrib_BatchNormWithReLU"
    # oneDNN's workspace is its own.
    more = {"outputs": 4, "attrs": attrs, "expect": "", "dtype": "float32"}
    cases.append(case(op, *inputs, skip=(3,), **more))
    reads = "g0 o1 o2 i0 i1 i2 i3 i4 o3"
    cases.append(back(gradient, reads, *inputs, forward=op, grads="i0 i1 i2", **more))
    inputs = image, positive(6), real(6)
    cases.append(case("InstanceNorm", *inputs, outputs=3, expect="n c", dtype="float32"))
    more = {"outputs": 3, "expect": "n c", "dtype": "float32"}
    cases.append(back("_backward_InstanceNorm", "g0 o1 o2 i0 i1", *inputs, **more))
    for mode, expect in (("instance", "a"), ("channel", "a c d"), ("spatial", "a b")):
        more = {"attrs": {"mode": mode}, "outputs": 2, "expect": expect}
        cases.append(case("L2Normalization", image, **more))
        cases.append(back("_backward_L2Normalization", "g0 o0 o1", image, **more))
    for axes, keep in (("(0,)", "False"), ("(1, 2)", "True")):
        attrs = {"axes": axes, "keepdims": keep}
        cases.append(case("moments", real(6, 4, 2), attrs=attrs, outputs=2))
        reads = "g0 g1 i0 o0 o1"
        cases.append(back("_backward_moments", reads, real(6, 4, 2), attrs=attrs, outputs=2))
    for shape, axis in (((6, 4), "-1"), ((2, 6, 4), "-1"), ((6, 4, 2), "1")):
        inputs = In(shape), positive(4), real(4)
        more = {"attrs": {"axis": axis}, "outputs": 3}
        cases.append(case("LayerNorm", *inputs, **more))
        cases.append(back("_backward_LayerNorm", "g0 i0 i1 o1 o2", *inputs, **more))
    cases.append(case("_contrib_div_sqrt_dim", real(6, 4), expect="i0"))
    return cases


CASES = _normalization()
