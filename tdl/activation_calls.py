"""Example calls of activations, softmax and dropout."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, case, ints, positive, real

__all__ = ["CASES"]


def _activation() -> list[Case]:
    cases = []
    for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
        attrs = {"act_type": kind}
        cases.append(case("Activation", real(6, 4), attrs=attrs, expect="i0 i1"))
        reads = "g0 o0" if kind == "relu" else "g0 o0 i0"
        cases.append(back("_backward_Activation", reads, real(6, 4), attrs=attrs, expect="i0 i1"))
    for kind in ("leaky", "elu", "selu", "gelu"):
        attrs = {"act_type": kind, "slope": "0.3"}
        cases.append(case("LeakyReLU", real(6, 4), attrs=attrs, expect="i0 i1"))
        cases.append(back("_backward_LeakyReLU", "g0 i0 o0", real(6, 4), attrs=attrs))
    for slopes in (4, 1):
        attrs, inputs = {"act_type": "prelu"}, (real(6, 4, 2), positive(slopes))
        more = {"attrs": attrs, "expect": "i0 i1 i2"}
        cases.append(case("LeakyReLU", *inputs, **more))
        cases.append(back("_backward_LeakyReLU", "g0 i0 i1 o0", *inputs, **more))
    lengths = {"use_length": "True", "axis": "1"}
    inputs = real(6, 4, 2), In((6, 2), "count", 4, "int32")
    more = {"attrs": lengths, "expect": "a c"}
    cases.append(case("softmax", *inputs, **more))
    cases.append(back("_backward_softmax", "g0 i0 i1 o0", *inputs, skip=(1,), **more))
    for axis in ("-1", "1"):
        expect = "a b" if axis == "-1" else "a c"
        for op in ("softmax", "softmin", "log_softmax"):
            more = {"attrs": {"axis": axis}, "expect": expect}
            cases.append(case(op, real(6, 4, 2), **more))
            cases.append(back(f"_backward_{op}", "g0 o0", real(6, 4, 2), **more))
    for mode in ("instance", "channel"):
        more = {"attrs": {"mode": mode}, "dtype": "float32"}
        cases.append(case("SoftmaxActivation", real(6, 4, 2, 2), **more))
        cases.append(back("_backward_SoftmaxActivation", "g0 o0", real(6, 4, 2, 2), **more))
    loss = real(6, 4), ints(4, 6)
    cases += [
        case("softmax_cross_entropy", *loss, expect="n"),
        back("_backward_softmax_cross_entropy", "g0 i0 i1", *loss, grads="i0", expect="n"),
    ]
    off, shared = {"p": "0"}, {"p": "0", "axes": "(1,)"}
    cases += [
        # With p = 0 the mask is not written; otherwise it is random and cannot be compared.
        case("Dropout", real(6, 4), attrs=off, outputs=2, skip=(1,), expect="i0 i1"),
        case("Dropout", real(6, 4), attrs={"p": "0.5"}, outputs=2, skip=(0, 1), expect="i0 i1"),
        case("Dropout", real(6, 4, 2), attrs=shared, outputs=2, skip=(1,), expect="i0 i2"),
        back("_backward_Dropout", "g0 o1", real(6, 4), attrs=off, outputs=2, expect="i0 i1"),
    ]
    return cases


CASES = _activation()
