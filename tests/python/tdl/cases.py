"""Sample shapes and attributes of every described operator.

Sizes are multiples of 6 where a dimension is to be split in 2, 3 or 6 parts.
"""

from __future__ import annotations

from itertools import product

from harness import Case, In

__all__ = ["ALL"]

R, P = In, lambda *s: In(s, "positive")


def _r(*shape: int) -> In:
    return In(shape)


def _ints(high: int, *shape: int) -> In:
    return In(shape, "int", high)


def _case(op: str, *inputs: In, attrs: dict | None = None, **options) -> Case:
    return Case(op, inputs, attrs or {}, **options)


def _back(op: str, reads: str, *inputs: In, **options) -> Case:
    """The case of a backward operator; its forward one is the name's, or `forward`."""
    forward = options.pop("forward", op.replace("_backward_", ""))
    grads = options.pop("grads", None)
    return _case(
        op,
        *inputs,
        forward=forward,
        reads=tuple(reads.split()),
        grads=None if grads is None else tuple(grads.split()),
        **options,
    )


UNARY = {
    "any": "relu sigmoid hard_sigmoid softsign tanh erf cbrt square exp expm1 sin cos tan sinh "
    "cosh degrees radians arctan arcsinh round rint ceil floor trunc fix sign abs negative "
    "logical_not _copy BlockGrad make_loss _contrib_gradientmultiplier zeros_like ones_like "
    "arcsin arccos arctanh erfinv".split(),
    "positive": "sqrt rsqrt rcbrt reciprocal log log10 log1p log2 gamma gammaln arccosh".split(),
}
SCALAR = (
    "_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar _rdiv_scalar _mod_scalar "
    "_rmod_scalar _maximum_scalar _minimum_scalar _hypot_scalar _equal_scalar _not_equal_scalar "
    "_greater_scalar _greater_equal_scalar _lesser_scalar _lesser_equal_scalar "
    "_logical_and_scalar _logical_or_scalar _logical_xor_scalar _power_scalar _rpower_scalar"
).split()
BINARY = (
    "elemwise_add elemwise_sub elemwise_mul elemwise_div _grad_add _maximum _minimum _hypot _mod "
    "_power _equal _not_equal _greater _greater_equal _lesser _lesser_equal _logical_and "
    "_logical_or _logical_xor"
).split()
BROADCAST = (
    "add sub mul div mod power maximum minimum hypot equal not_equal greater greater_equal lesser "
    "lesser_equal logical_and logical_or logical_xor"
).split()


def _elementwise() -> list[Case]:
    cases = []
    for kind, names in UNARY.items():
        for name in names:
            cases.append(_case(name, In((6, 4), kind), expect="i0 i1"))
    cases += [
        _case("clip", _r(6, 4), attrs={"a_min": "-0.3", "a_max": "0.4"}, expect="i0 i1"),
        _case("smooth_l1", _r(6, 4), attrs={"scalar": "1.0"}),
        _case("_contrib_quadratic", _r(6, 4), attrs={"a": "2", "b": "1", "c": "3"}),
        _case("Cast", _r(6, 4), attrs={"dtype": "float32"}, expect="i0 i1"),
        _case("amp_cast", _r(6, 4), attrs={"dtype": "float16"}, dtype="float32"),
        _case("_identity_with_attr_like_rhs", _r(6, 4), _r(6, 4), expect="i0 i1"),
        _case("add_n", _r(6, 4), _r(6, 4), _r(6, 4), attrs={"num_args": "3"}, expect="i0 i1"),
        _case("_contrib_div_sqrt_dim", _r(6, 4), expect="i0"),
    ]
    cases += [_case(n, P(6, 4), attrs={"scalar": "0.4"}, expect="i0 i1") for n in SCALAR]
    cases += [_case(n, P(6, 4), P(6, 4), expect="i0 i1") for n in BINARY]
    return cases


def _unary_backward() -> list[Case]:
    by_output = "relu sigmoid tanh sqrt cbrt tan erfinv".split()
    cases = []
    plain = (
        "relu sigmoid hard_sigmoid softsign tanh erf erfinv sqrt rsqrt cbrt rcbrt square "
        "reciprocal expm1 log log10 log1p log2 gamma gammaln sin cos tan sinh cosh degrees "
        "radians arcsin arccos arctan arcsinh arctanh abs sign"
    ).split()
    for name in plain:
        reads = "g0 o0" if name in by_output else "g0 i0"
        cases.append(_back(f"_backward_{name}", reads, P(6, 4), expect="i0 i1"))
    cases.append(_back("_backward_arccosh", "g0 i0", P(6, 4), expect="i0 i1"))
    scalar = {"mul": "g0", "div": "g0", "rdiv": "g0 i0", "mod": "g0 i0", "rmod": "g0 i0"}
    scalar.update({"power": "g0 i0", "rpower": "g0 o0", "hypot": "g0 i0"})
    scalar.update({"maximum": "g0 i0", "minimum": "g0 i0"})
    for name, reads in scalar.items():
        attrs = {"scalar": "0.4"}
        op = f"_backward_{name}_scalar"
        cases.append(_back(op, reads, P(6, 4), attrs=attrs, forward=f"_{name}_scalar"))
    binary = {"mul": "elemwise_mul", "div": "elemwise_div", "maximum": "_maximum"}
    binary.update({"minimum": "_minimum", "hypot": "_hypot", "mod": "_mod", "power": "_power"})
    for name, forward in binary.items():
        inputs = P(6, 4), P(6, 4)
        cases.append(_back(f"_backward_{name}", "g0 i0 i1", *inputs, forward=forward))
    inputs = _r(6, 4), _r(6, 4)
    cases.append(_back("_backward_sub", "g0", *inputs, forward="elemwise_sub"))
    cases += [
        _back("_backward_clip", "g0 i0", _r(6, 4), attrs={"a_min": "-0.3", "a_max": "0.4"}),
        _back("_backward_smooth_l1", "g0 i0", _r(6, 4), attrs={"scalar": "1.0"}),
        _back("_backward_cast", "g0", _r(6, 4), attrs={"dtype": "float32"}, forward="Cast"),
        _back(
            "_backward_amp_cast", "g0", _r(6, 4), attrs={"dtype": "float16"}, dtype="float32",
            forward="amp_cast",
        ),
        _back(
            "_contrib_backward_quadratic",
            "g0 i0",
            _r(6, 4),
            attrs={"a": "2", "b": "1", "c": "3"},
            forward="_contrib_quadratic",
        ),
        _back(
            "_contrib_backward_gradientmultiplier",
            "g0",
            _r(6, 4),
            attrs={"scalar": "2"},
            forward="_contrib_gradientmultiplier",
        ),
    ]
    return cases


BROADCAST_SHAPES = (
    ((6, 4), (6, 4), "i0 i1"),
    ((6, 4), (1, 4), "i0 i1"),
    ((6, 1), (6, 4), "i0 i1"),
    ((6, 1), (1, 4), "i0 i1"),
    ((2, 6, 4), (1, 6, 1), "i0 i1 i2"),
    ((1, 6), (1, 6), "i1"),
)


def _broadcast() -> list[Case]:
    cases = []
    for k, name in enumerate(BROADCAST):
        some = BROADCAST_SHAPES if name in ("add", "mul") else BROADCAST_SHAPES[k % 5 :][:2]
        for a, b, expect in some:
            cases.append(_case(f"broadcast_{name}", P(*a), P(*b), expect=expect))
            if k >= 9:
                continue
            reads = "g0" if name in ("add", "sub") else "g0 i0 i1"
            backward = f"_backward_broadcast_{name}"
            cases.append(_back(backward, reads, P(*a), P(*b), expect=expect))
    wide = {"shape": "(6, 4)"}
    axis = {"axis": "1", "size": "4"}
    axes = {"axis": "(0, 2)", "size": "(4, 2)"}
    cases += [
        _case("broadcast_to", _r(6, 1), attrs=wide, expect="i0 i1"),
        _case("broadcast_to", _r(6, 1), attrs={"shape": "(0, 4)"}, expect="i0 i1"),
        _case("broadcast_axis", _r(6, 1), attrs=axis, expect="i0 i1"),
        _case("broadcast_axis", _r(1, 6, 1), attrs=axes, expect="i0 i1 i2"),
        _case("broadcast_like", _r(6, 1), _r(6, 4), expect="i0 i1"),
    ]
    for small, big, expect in (((6, 1), (6, 4), "i0 i1"), ((1, 6, 1), (4, 6, 2), "i0 i1 i2")):
        more = {"forward": "broadcast_to", "forward_attrs": {"shape": str(big)}, "expect": expect}
        attrs = {"keepdims": "true"}
        cases.append(_back("_broadcast_backward", "g0", In(small), attrs=attrs, **more))
    return cases


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
    data = _r(6, 4, 2)
    for attrs, op in product(AXES, ("sum", "max", "min", "prod", "nansum", "mean")):
        if op in ("prod", "nansum", "min") and len(attrs) > 1:
            continue
        expect = "i0 i1 i2" if op != "mean" else None
        cases.append(_case(op, data, attrs=attrs, expect=expect))
        # nansum's gradient is registered under a name that this build lacks an entry for.
        reads = "g0" if op in ("sum", "mean") else "g0 i0 o0"
        expect = "i0 i1 i2" if op != "mean" else None
        cases.append(_back(f"_backward_{op}", reads, data, attrs=attrs, expect=expect))
    cases += [_case("mean", data, attrs={"axis": "(1, 2)"}, expect="i0")]
    for attrs in ({"ord": "2", "axis": "1"}, {"ord": "1", "axis": "1"}, {"ord": "2"}):
        cases.append(_case("norm", data, attrs=attrs))
    for attrs in ({"ord": "2", "axis": "1"}, {"ord": "1", "axis": "1"}):
        cases.append(_back("_backward_norm", "g0 i0 o0", data, attrs=attrs))
    for op in ("argmax", "argmin"):
        cases.append(_case(op, data, attrs={"axis": "1"}, expect="i0 i2"))
        cases.append(_case(op, data, attrs={"axis": "1", "keepdims": "True"}, expect="i0 i2"))
    return cases


def _linear() -> list[Case]:
    cases = []
    weight, bias = _r(6, 12), _r(6)
    for data, flatten in ((_r(4, 12), "True"), (_r(4, 2, 12), "False"), (_r(4, 3, 2, 2), "True")):
        for no_bias in ("True", "False"):
            attrs = {"num_hidden": "6", "flatten": flatten, "no_bias": no_bias}
            inputs = (data, weight) if no_bias == "True" else (data, weight, bias)
            cases.append(_case("FullyConnected", *inputs, attrs=attrs))
            cases.append(_back("_backward_FullyConnected", "g0 i0 i1", *inputs, attrs=attrs))
    named = {"num_hidden": "6", "flatten": "0"}
    cases.append(_case("FullyConnected", _r(4, 12), weight, bias, attrs=named, expect="b0 o i"))
    for ta, tb in product(("True", "False"), repeat=2):
        attrs = {"transpose_a": ta, "transpose_b": tb}
        lhs = _r(6, 4) if ta == "True" else _r(4, 6)
        rhs = _r(2, 6) if tb == "True" else _r(6, 2)
        cases.append(_case("dot", lhs, rhs, attrs=attrs, expect="i0 j0 k"))
        cases.append(_back("_backward_dot", "g0 i0 i1", lhs, rhs, attrs=attrs, expect="i0 j0 k"))
        batched = In((2, *lhs.shape)), In((2, *rhs.shape))
        cases.append(_case("batch_dot", *batched, attrs=attrs, expect="b0 i j k"))
    cases += [
        _case("dot", _r(6), _r(6), expect="k"),
        _case("dot", _r(2, 4, 6), _r(6, 3), expect="i0 i1 j0 k"),
        _case("dot", _r(4, 6), _r(6, 2, 3), expect="i0 j0 j1 k"),
        _case("batch_dot", _r(2, 3, 4, 6), _r(2, 3, 6, 2), expect="b0 b1 i j k"),
    ]
    return cases


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
                inputs.append(_r(weight[0]))
                reads += " i2"
            cases.append(_case("Convolution", *inputs, attrs=attrs, expect=expect))
            cases.append(
                _back("_backward_Convolution", reads, *inputs, attrs=attrs, expect=backward)
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
        cases.append(_case("Pooling", data, attrs=attrs, expect=expect, **common))
        cases.append(
            _case("Pooling", data, attrs=attrs, expect=expect, dtype="float32", **common)
        )
        reads = "g0 z1 i0 o0 o1" if outputs == 2 else "g0 i0 o0"
        back = _back(
            "_backward_Pooling", reads, data, attrs=attrs, outputs=outputs, expect="b c"
        )
        cases.append(back)
    uncounted = {**POOLINGS[1][0], "pool_type": "avg", "count_include_pad": "False"}
    cases += [
        _case("Pooling", _r(4, 6, 8, 8), attrs=uncounted, expect="b c"),
        _case("Pooling", _r(4, 6, 12), attrs={"kernel": "(3,)", "pool_type": "avg"}),
        _case("Pooling", _r(2, 2, 4, 6, 4), attrs={"kernel": "(2, 2, 2)", "pool_type": "avg"}),
    ]
    return cases


def _activation() -> list[Case]:
    cases = []
    for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
        attrs = {"act_type": kind}
        cases.append(_case("Activation", _r(6, 4), attrs=attrs, expect="i0 i1"))
        reads = "g0 o0" if kind == "relu" else "g0 o0 i0"
        cases.append(_back("_backward_Activation", reads, _r(6, 4), attrs=attrs, expect="i0 i1"))
    for kind in ("leaky", "elu", "selu", "gelu"):
        attrs = {"act_type": kind, "slope": "0.3"}
        cases.append(_case("LeakyReLU", _r(6, 4), attrs=attrs, expect="i0 i1"))
        cases.append(_back("_backward_LeakyReLU", "g0 i0 o0", _r(6, 4), attrs=attrs))
    for axis in ("-1", "1"):
        expect = "i0 i1" if axis == "-1" else "i0 i2"
        for op in ("softmax", "softmin", "log_softmax"):
            more = {"attrs": {"axis": axis}, "expect": expect}
            cases.append(_case(op, _r(6, 4, 2), **more))
            cases.append(_back(f"_backward_{op}", "g0 o0", _r(6, 4, 2), **more))
    for mode in ("instance", "channel"):
        more = {"attrs": {"mode": mode}, "dtype": "float32"}
        cases.append(_case("SoftmaxActivation", _r(6, 4, 2, 2), **more))
        cases.append(_back("_backward_SoftmaxActivation", "g0 o0", _r(6, 4, 2, 2), **more))
    loss = _r(6, 4), _ints(4, 6)
    cases += [
        _case("softmax_cross_entropy", *loss, expect="n"),
        _back("_backward_softmax_cross_entropy", "g0 i0 i1", *loss, grads="i0", expect="n"),
    ]
    off, shared = {"p": "0"}, {"p": "0", "axes": "(1,)"}
    cases += [
        # Without chance the mask is not written; with chance nothing can be compared.
        _case("Dropout", _r(6, 4), attrs=off, outputs=2, skip=(1,), expect="i0 i1"),
        _case("Dropout", _r(6, 4), attrs={"p": "0.5"}, outputs=2, skip=(0, 1), expect="i0 i1"),
        _case("Dropout", _r(6, 4, 2), attrs=shared, outputs=2, skip=(1,), expect="i0 i2"),
        _back("_backward_Dropout", "g0 o1", _r(6, 4), attrs=off, outputs=2, expect="i0 i1"),
    ]
    return cases


def _normalization() -> list[Case]:
    cases = []
    states = P(6), _r(6), _r(6), P(6)
    for shape, axis in (((4, 6), "1"), ((4, 6, 3, 2), "1"), ((2, 3, 6), "-1")):
        attrs = {"axis": axis, "fix_gamma": "False"}
        inputs = (In(shape), *states)
        more = {"attrs": attrs, "outputs": 3, "expect": "c"}
        cases.append(_case("BatchNorm", *inputs, **more))
        reads = "g0 o1 o2 i0 i1 i2 i3 i4"
        cases.append(_back("_backward_BatchNorm", reads, *inputs, grads="i0 i1 i2", **more))
    for shape, axis in (((6, 4), "-1"), ((2, 6, 4), "-1"), ((6, 4, 2), "1")):
        inputs = In(shape), P(4), _r(4)
        more = {"attrs": {"axis": axis}, "outputs": 3}
        cases.append(_case("LayerNorm", *inputs, **more))
        cases.append(_back("_backward_LayerNorm", "g0 i0 i1 o1 o2", *inputs, **more))
    return cases


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


def _movement() -> list[Case]:
    cases = []
    for old, new, expect in RESHAPES:
        cases.append(_case("Reshape", In(old), attrs={"shape": str(new)}, expect=expect))
        like = {"forward": "reshape_like", "grads": "i0", "like": {1: "g0"}}
        cases.append(_back("_backward_copy", "g0", In(old), In(new), **like))
        more = {"forward": "Reshape", "forward_attrs": {"shape": str(new)}}
        cases.append(_back("_backward_reshape", "g0", In(old), **more))
        cases.append(_case("reshape_like", In(old), In(new)))
    cases += [
        _case("Reshape", _r(6, 4, 2), attrs={"shape": "(0, -1)"}),
        _case("Reshape", _r(6, 4, 2), attrs={"shape": "(-1, 2)", "reverse": "True"}),
        _case("Reshape", _r(6, 4, 2), attrs={"shape": "(-3, -2)"}),
        _case("Flatten", _r(6, 4, 2, 2)),
        _case("Flatten", _r(6, 4), expect="i0 i1"),
        _back("_backward_copy", "g0", _r(6, 4, 2), forward="Flatten"),
        _case("expand_dims", _r(6, 4), attrs={"axis": "1"}, expect="i0 i2"),
        _case("expand_dims", _r(6, 4), attrs={"axis": "-1"}, expect="i0 i1"),
        _case("squeeze", _r(6, 1, 4), expect="i0 i1"),
        _case("squeeze", _r(6, 1, 4, 1), attrs={"axis": "(1,)"}, expect="i0 i1"),
        _back("_backward_squeeze", "g0", _r(6, 1, 4), forward="squeeze"),
        _case("transpose", _r(6, 4, 2), expect="i0 i1 i2"),
        _case("transpose", _r(6, 4, 2), attrs={"axes": "(1, 0, 2)"}, expect="i0 i1 i2"),
        _case("SwapAxis", _r(6, 4, 2), attrs={"dim1": "0", "dim2": "2"}, expect="i0 i1 i2"),
        _back("_backward_SwapAxis", "g0", _r(6, 4, 2), attrs={"dim1": "0", "dim2": "2"}),
        _case("reverse", _r(6, 4), attrs={"axis": "(1,)"}, expect="i0 i1"),
        _back("_backward_reverse", "g0", _r(6, 4), attrs={"axis": "(0,)"}, forward="reverse"),
        _case("repeat", _r(6, 4), attrs={"repeats": "2", "axis": "0"}),
        _case("repeat", _r(6, 4), attrs={"repeats": "2", "axis": "1"}),
        _back("_backward_repeat", "g0", _r(6, 4), attrs={"repeats": "2", "axis": "1"}),
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
)


def _slices() -> list[Case]:
    cases = []
    for attrs in SLICES:
        data = In((12, 6) if attrs != SLICES[0] else (6, 4))
        cases.append(_case("slice", data, attrs=attrs))
        cases.append(_back("_backward_slice", "g0", data, attrs=attrs))
    for attrs in (
        {"axis": "1", "begin": "0", "end": "None"},
        {"axis": "1", "begin": "2", "end": "6"},
        {"axis": "0", "begin": "0", "end": "6"},
        {"axis": "-1", "begin": "-4", "end": "None"},
        {"axis": "0", "begin": "0", "end": "-4"},
    ):
        cases.append(_case("slice_axis", _r(12, 6), attrs=attrs))
        cases.append(_back("_backward_slice_axis", "g0", _r(12, 6), attrs=attrs))
    cases.append(_case("slice_like", _r(12, 6), _r(6, 4)))
    for dim in (0, 1, 2):
        pieces = [[6, 4, 2], [6, 4, 2]]
        pieces[1][dim] += 6
        inputs = [In(tuple(p)) for p in pieces]
        attrs = {"dim": str(dim), "num_args": "2"}
        kept = " ".join(f"i{d}" for d in range(3) if d != dim)
        cases.append(_case("Concat", *inputs, attrs=attrs, expect=kept))
        cases.append(_back("_backward_Concat", "g0 i0 i1", *inputs, attrs=attrs, expect=kept))
        same = In((6, 4, 2)), In((6, 4, 2))
        for axis in (str(dim), str(dim - 3)):
            attrs = {"axis": axis, "num_args": "2"}
            cases.append(_case("stack", *same, attrs=attrs))
            cases.append(_back("_backward_stack", "g0", *same, attrs=attrs))
        split = {"axis": str(dim), "num_outputs": "2"}
        cases.append(_case("SliceChannel", same[0], attrs=split, outputs=2, expect=kept))
        cases.append(_back("_backward_SliceChannel", "g0 g1", same[0], attrs=split, outputs=2))
        squeezed = {**split, "squeeze_axis": "True"}
        data = In(tuple(2 if d == dim else n for d, n in enumerate((6, 4, 2))))
        cases.append(_case("SliceChannel", data, attrs=squeezed, outputs=2, expect=kept))
        cases.append(_back("_backward_SliceChannel", "g0 g1", data, attrs=squeezed, outputs=2))
    return cases


def _indexing() -> list[Case]:
    cases = []
    table = {"input_dim": "10", "output_dim": "4"}
    for shape, expect in (((6,), "i0 d"), ((2, 6), "i0 i1 d")):
        inputs = _ints(10, *shape), _r(10, 4)
        cases.append(_case("Embedding", *inputs, attrs=table, expect=expect))
        cases.append(
            _back(
                "_backward_Embedding", "g0 i0", *inputs, attrs=table, expect=expect, hide=(0,)
            )
        )
    for axis, mode in (("0", "clip"), ("1", "wrap"), ("-1", "clip")):
        inputs = _r(6, 4, 6), _ints(4, 2, 4)
        attrs = {"axis": axis, "mode": mode}
        cases.append(_case("take", *inputs, attrs=attrs))
        cases.append(_back("_backward_take", "g0 i1", *inputs, attrs=attrs))
    for axis, keep, index in (
        ("-1", "False", (6, 2)),
        ("1", "False", (6, 4)),
        ("1", "True", (6, 1, 4)),
        ("1", "False", (6, 1, 4)),
    ):
        data = _r(6, 2, 4)
        inputs = data, _ints(2, *index)
        attrs = {"axis": axis, "keepdims": keep}
        cases.append(_case("pick", *inputs, attrs=attrs))
        cases.append(_back("_backward_pick", "g0 i1", *inputs, attrs=attrs, grads="i0"))
    cases += [
        _case("one_hot", _ints(4, 6), attrs={"depth": "4"}, expect="i0"),
        _case("one_hot", _ints(4, 6, 2), attrs={"depth": "4"}, expect="i0 i1"),
        _case("SequenceMask", _r(6, 4, 2), attrs={}, expect="i0 i1 i2"),
        _case(
            "SequenceMask",
            _r(6, 4, 2),
            _ints(6, 4),
            attrs={"use_sequence_length": "True", "value": "2"},
            expect="i1 i2",
        ),
    ]
    for condition in ((6, 4), (6,)):
        inputs = In(condition, "flag"), _r(6, 4), _r(6, 4)
        cases.append(_case("where", *inputs, expect="i0 i1"))
        cases.append(_back("_backward_where", "g0 i0", *inputs, grads="i1 i2", expect="i0 i1"))
    return cases


def _creation() -> list[Case]:
    shape = {"shape": "(6, 4)"}
    cases = [_case(n, attrs=shape, expect="i0 i1") for n in ("_zeros", "_ones")]
    cases += [
        _case("_zeros_without_dtype", attrs={**shape, "dtype": "0"}, expect="i0 i1"),
        _case("_full", attrs={**shape, "value": "3"}, expect="i0 i1"),
        _case("_arange", attrs={"start": "0", "stop": "6"}, expect=""),
        _case("_eye", attrs={"N": "6", "M": "4"}, expect=""),
        _case("_contrib_arange_like", _r(6, 4), attrs={"axis": "0"}, expect=""),
    ]
    random = {
        "uniform": {},
        "normal": {},
        "exponential": {},
        "gamma": {},
        "poisson": {},
        "negative_binomial": {"k": "3", "p": "0.5"},
        "generalized_negative_binomial": {"mu": "2", "alpha": "0.3"},
    }
    for name, attrs in random.items():
        more = {"skip": (0,), "expect": "i0 i1"}
        cases.append(_case(f"_random_{name}", attrs={**attrs, **shape}, **more))
        cases.append(_case(f"_random_{name}_like", _r(6, 4), attrs=attrs, **more))
    integers = {**shape, "low": "0", "high": "9"}
    cases.append(_case("_random_randint", attrs=integers, skip=(0,), expect="i0 i1"))
    return cases


def _optimizer() -> list[Case]:
    weight, half = _r(6, 4), In((6, 4), dtype="float16")
    single = In((6, 4), dtype="float32")
    state = P(6, 4)
    plain = {"lr": "0.1", "wd": "0.01"}
    scale = In((1,), "positive", dtype="float32")
    counts = {
        "sgd_update": 0,
        "sgd_mom_update": 1,
        "nag_mom_update": 1,
        "adam_update": 2,
        "ftrl_update": 2,
        "rmsprop_update": 1,
        "rmspropalex_update": 3,
        "signsgd_update": 0,
        "signum_update": 1,
    }
    cases = []
    for name, states in counts.items():
        inputs = [weight, weight, *[state] * states]
        if name == "rmspropalex_update":
            inputs = [weight, weight, In((6, 4), "int", 1), In((6, 4), "int", 1), weight]
        cases.append(_case(name, *inputs, attrs=plain, imperative=True, expect="i0 i1"))
    cases += [
        _case("ftml_update", weight, weight, state, state, state, attrs={**plain, "t": "1"}),
        _case("mp_sgd_update", half, half, single, attrs=plain),
        _case("mp_sgd_mom_update", half, half, single, single, attrs=plain),
        _case("mp_nag_mom_update", half, half, single, single, attrs=plain),
        _case("_adamw_update", weight, weight, state, state, scale, attrs={**plain, "eta": "1"}),
        _case(
            "_mp_adamw_update",
            *(half, half, single, In((6, 4), "positive", dtype="float32"), single),
            scale,
            attrs={**plain, "eta": "1"},
        ),
    ]
    fused = {"lrs": "(0.1, 0.2)", "wds": "(0.01, 0)", "num_weights": "2"}
    for name, kinds in {
        "multi_sgd_update": "ww",
        "multi_sgd_mom_update": "www",
        "multi_mp_sgd_update": "hhs",
        "multi_mp_sgd_mom_update": "hhss",
    }.items():
        types = {"w": "float32", "h": "float16", "s": "float32"}
        inputs = [In(s, dtype=types[k]) for s in ((6, 4), (2,)) for k in kinds]
        more = {"outputs": 2, "imperative": True, "expect": "w0_0 w0_1 w1_0"}
        more["shaped"] = (0, len(kinds))
        cases.append(_case(name, *inputs, attrs=fused, **more))
        rates = In((2,), "positive", dtype="float32"), In((2,), "positive", dtype="float32")
        own = {"num_weights": "2"}
        cases.append(_case(f"preloaded_{name}", *inputs, *rates, attrs=own, **more))
    return [c if c.imperative else _imperative(c) for c in cases]


def _imperative(case: Case) -> Case:
    import dataclasses

    return dataclasses.replace(case, imperative=True)


ALL = [
    *_elementwise(),
    *_unary_backward(),
    *_broadcast(),
    *_reduction(),
    *_linear(),
    *_convolution(),
    *_pooling(),
    *_activation(),
    *_normalization(),
    *_movement(),
    *_slices(),
    *_indexing(),
    *_creation(),
    *_optimizer(),
]
