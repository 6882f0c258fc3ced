"""Example calls of element-wise operators."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, case, positive, real, words

__all__ = ["CASES"]

UNARY = {
    "any": words(
        "relu sigmoid hard_sigmoid softsign tanh erf cbrt square exp expm1 sin cos tan sinh "
        "cosh degrees radians arctan arcsinh round rint ceil floor trunc fix sign abs negative "
        "logical_not _copy BlockGrad make_loss _contrib_gradientmultiplier zeros_like ones_like "
        "arcsin arccos arctanh erfinv"
    ),
    "positive": words("sqrt rsqrt rcbrt reciprocal log log10 log1p log2 gamma gammaln arccosh"),
}
SCALAR = words(
    "_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar _rdiv_scalar _mod_scalar "
    "_rmod_scalar _maximum_scalar _minimum_scalar _hypot_scalar _equal_scalar _not_equal_scalar "
    "_greater_scalar _greater_equal_scalar _lesser_scalar _lesser_equal_scalar "
    "_logical_and_scalar _logical_or_scalar _logical_xor_scalar _power_scalar _rpower_scalar"
)
BINARY = words(
    "elemwise_add elemwise_sub elemwise_mul elemwise_div _grad_add _maximum _minimum _hypot _mod "
    "_power _equal _not_equal _greater _greater_equal _lesser _lesser_equal _logical_and "
    "_logical_or _logical_xor"
)


def _elementwise() -> list[Case]:
    cases = []
    for kind, names in UNARY.items():
        for name in names:
            cases.append(case(name, In((6, 4), kind), expect="i0 i1"))
    cases += [
        case("clip", real(6, 4), attrs={"a_min": "-0.3", "a_max": "0.4"}, expect="i0 i1"),
        case("smooth_l1", real(6, 4), attrs={"scalar": "1.0"}),
        case("_contrib_quadratic", real(6, 4), attrs={"a": "2", "b": "1", "c": "3"}),
        case("Cast", real(6, 4), attrs={"dtype": "float32"}, expect="i0 i1"),
        case("amp_cast", real(6, 4), attrs={"dtype": "float16"}, dtype="float32"),
        case("_identity_with_attr_like_rhs", real(6, 4), real(6, 4), expect="i0 i1"),
        case("add_n", real(6, 4), real(6, 4), real(6, 4), attrs={"num_args": "3"}, expect="i0 i1"),
    ]
    cases += [case(n, positive(6, 4), attrs={"scalar": "0.4"}, expect="i0 i1") for n in SCALAR]
    cases += [case(n, positive(6, 4), positive(6, 4), expect="i0 i1") for n in BINARY]
    return cases


def _unary_backward() -> list[Case]:
    by_output = words("relu sigmoid tanh sqrt cbrt tan erfinv")
    cases = []
    plain = words(
        "relu sigmoid hard_sigmoid softsign tanh erf erfinv sqrt rsqrt cbrt rcbrt square "
        "reciprocal expm1 log log10 log1p log2 gamma gammaln sin cos tan sinh cosh degrees "
        "radians arcsin arccos arctan arcsinh arctanh abs sign"
    )
    for name in plain:
        reads = "g0 o0" if name in by_output else "g0 i0"
        cases.append(back(f"_backward_{name}", reads, positive(6, 4), expect="i0 i1"))
    cases.append(back("_backward_arccosh", "g0 i0", positive(6, 4), expect="i0 i1"))
    scalar = {"mul": "g0", "div": "g0", "rdiv": "g0 i0", "mod": "g0 i0", "rmod": "g0 i0"}
    scalar.update({"power": "g0 i0", "rpower": "g0 o0", "hypot": "g0 i0"})
    scalar.update({"maximum": "g0 i0", "minimum": "g0 i0"})
    for name, reads in scalar.items():
        attrs = {"scalar": "0.4"}
        op = f"_backward_{name}_scalar"
        cases.append(back(op, reads, positive(6, 4), attrs=attrs, forward=f"_{name}_scalar"))
    binary = {"mul": "elemwise_mul", "div": "elemwise_div", "maximum": "_maximum"}
    binary.update({"minimum": "_minimum", "hypot": "_hypot", "mod": "_mod", "power": "_power"})
    for name, forward in binary.items():
        inputs = positive(6, 4), positive(6, 4)
        cases.append(back(f"_backward_{name}", "g0 i0 i1", *inputs, forward=forward))
    inputs = real(6, 4), real(6, 4)
    cases.append(back("_backward_sub", "g0", *inputs, forward="elemwise_sub"))
    cases += [
        back("_backward_clip", "g0 i0", real(6, 4), attrs={"a_min": "-0.3", "a_max": "0.4"}),
        back("_backward_smooth_l1", "g0 i0", real(6, 4), attrs={"scalar": "1.0"}),
        back("_backward_cast", "g0", real(6, 4), attrs={"dtype": "float32"}, forward="Cast"),
        back(
            "_backward_amp_cast",
            "g0",
            real(6, 4),
            attrs={"dtype": "float16"},
            dtype="float32",
            forward="amp_cast",
        ),
        back(
            "_contrib_backward_quadratic",
            "g0 i0",
            real(6, 4),
            attrs={"a": "2", "b": "1", "c": "3"},
            forward="_contrib_quadratic",
        ),
        back(
            "_contrib_backward_gradientmultiplier",
            "g0",
            real(6, 4),
            attrs={"scalar": "2"},
            forward="_contrib_gradientmultiplier",
        ),
    ]
    return cases


def _passed_on() -> list[Case]:
    two = real(6, 4), real(6)
    more = {"attrs": {"num_outputs": "2"}, "outputs": 2, "dtype": "float32"}
    more["expect"] = "i0 i1"
    cases = [
        case("amp_multicast", *two, **more),
        back("_backward_amp_multicast", "g0 g1", *two, **more),
        case("_copyto", real(6, 4), imperative=True, shaped=(0,), expect="i0 i1"),
        case("_CrossDeviceCopy", real(6, 4), expect="i0 i1"),
        back("_backward__CrossDeviceCopy", "g0", real(6, 4), forward="_CrossDeviceCopy"),
        case("MakeLoss", real(6, 4), expect="i0 i1"),
        case(
            "IdentityAttachKLSparseReg", positive(6, 4), positive(4), expect="n c", dtype="float32"
        ),
        case("_scatter_elemwise_div", real(6, 4), real(6, 4), expect="i0 i1"),
    ]
    for name in ("_contrib_round_ste", "_contrib_sign_ste"):
        cases.append(case(name, real(6, 4), expect="i0 i1"))
    for name in ("_scatter_plus_scalar", "_scatter_minus_scalar"):
        cases.append(case(name, real(6, 4), attrs={"scalar": "2"}, expect="i0 i1"))
    return cases


CASES = [*_elementwise(), *_unary_backward(), *_passed_on()]
