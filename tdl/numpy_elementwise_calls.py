"""Example calls of NumPy's element-wise, broadcasting and creation operators."""

from __future__ import annotations

from typing import Any

from tofu.lang.example_calls import Case, In, back, case, positive, real, words

__all__ = ["CASES"]

_UNARY = {
    "real": words(
        "absolute negative sign rint ceil floor trunc fix logical_not square cbrt exp expm1 around "
        "isnan isinf isposinf isneginf isfinite sin cos tan arcsin arccos arctan sinh cosh tanh "
        "arcsinh arctanh degrees radians nan_to_num"
    ),
    "positive": words("reciprocal sqrt log log10 log2 log1p arccosh"),
}
_SCALAR = words(
    "add subtract rsubtract multiply true_divide rtrue_divide mod rmod power rpower copysign "
    "rcopysign arctan2 rarctan2 ldexp rldexp equal not_equal greater greater_equal less less_equal"
)
_BROADCAST = words(
    "add subtract multiply true_divide mod power copysign arctan2 hypot ldexp equal not_equal "
    "greater greater_equal less less_equal"
)
_INTEGER = words("lcm bitwise_and bitwise_or bitwise_xor")
_SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...], str], ...] = (
    ((6, 4), (6, 4), "i0 i1"),
    ((6, 4), (1, 4), "i0 i1"),
    ((6, 1), (4,), "i0 i1"),
    ((2, 6, 4), (6, 1), "i0 i1 i2"),
    ((), (6, 4), "i0 i1"),
    ((), (), ""),
)
_GRADIENTS = {
    "_backward_npi_broadcast_add": "_npi_add",
    "_backward_npi_broadcast_sub": "_npi_subtract",
    "_backward_npi_broadcast_mul": "_npi_multiply",
    "_backward_npi_broadcast_div": "_npi_true_divide",
    "_backward_npi_broadcast_mod": "_npi_mod",
    "_backward_npi_broadcast_power": "_npi_power",
    "_backward_npi_copysign": "_npi_copysign",
    "_backward_npi_arctan2": "_npi_arctan2",
    "_backward_npi_hypot": "_npi_hypot",
    "_backward_npi_ldexp": "_npi_ldexp",
}


def _some(number: int) -> Any:
    """Two of the pairs of shapes, a different two for each operator."""
    return [_SHAPES[(number + k) % len(_SHAPES)] for k in range(2)]


def _integers(*shape: int) -> In:
    return In(shape, "int", 50, dtype="int32")


def _elementwise() -> list[Case]:
    more: dict[str, Any] = {"numpy": True, "expect": "i0 i1"}
    cases = [
        case(f"_npi_{n}", In((6, 4), kind), **more) for kind, names in _UNARY.items() for n in names
    ]
    cases += [case(n, real(6, 4), **more) for n in ("_np_copy", "_npx_relu", "_npx_sigmoid")]
    scalar = {"scalar": "1.5", "is_int": "False"}
    cases += [case(f"_npi_{n}_scalar", positive(6, 4), attrs=scalar, **more) for n in _SCALAR]
    whole = {"scalar": "6", "is_int": "True"}
    cases += [case(f"_npi_{n}_scalar", _integers(6, 4), attrs=whole, **more) for n in _INTEGER]
    flag = In((6, 4), "flag")
    cases += [
        case("_npi_bitwise_not", _integers(6, 4), **more),
        case("_npi_full_like", real(6, 4), attrs={"fill_value": "2"}, **more),
        case("_npi_where_scalar2", flag, attrs={"x": "2", "y": "3"}, **more),
        back("_npi_backward_nan_to_num", "g0 i0", real(6, 4), forward="_npi_nan_to_num", **more),
    ]
    for name in words("arctan2_scalar rarctan2_scalar ldexp_scalar rldexp_scalar"):
        options = {"forward": f"_npi_{name}", "attrs": scalar}
        cases.append(back(f"_backward_npi_{name}", "g0 i0", positive(6, 4), **options, **more))
    return cases


def _broadcast() -> list[Case]:
    cases = []
    for k, name in enumerate(_BROADCAST):
        for a, b, expect in _some(k):
            inputs = positive(*a), positive(*b)
            cases.append(case(f"_npi_{name}", *inputs, numpy=True, expect=expect))
    for k, name in enumerate(_INTEGER):
        for a, b, expect in _some(k):
            inputs = _integers(*a), _integers(*b)
            cases.append(case(f"_npi_{name}", *inputs, numpy=True, expect=expect))
    for k, (name, forward) in enumerate(_GRADIENTS.items()):
        for a, b, expect in _some(k + 1):
            more: dict[str, Any] = {"forward": forward, "numpy": True, "expect": expect}
            cases.append(back(name, "g0 i0 i1", positive(*a), positive(*b), **more))
    return [*cases, *_stretched(), *_where()]


def _stretched() -> list[Case]:
    cases = []
    pairs = (((6, 1), (6, 4), "i0 i1"), ((4,), (6, 4), "i0 i1"), ((1, 6, 1), (4, 6, 2), "i0 i1 i2"))
    for small, big, expect in pairs:
        more: dict[str, Any] = {"attrs": {"shape": str(big)}, "numpy": True, "expect": expect}
        cases.append(case("_npi_broadcast_to", In(small), **more))
        more.update(forward="_npi_broadcast_to", forward_attrs={"shape": str(big)}, attrs={})
        cases.append(back("_backward_np_broadcast_to", "g0", In(small), **more))
    return cases


def _where() -> list[Case]:
    more: dict[str, Any] = {"numpy": True, "expect": "i0 i1"}
    scalar = {"scalar": "0.5"}
    cases = []
    for shape, x, y in (((6, 4), (6, 4), (6, 4)), ((6, 1), (4,), (6, 4))):
        flag = In(shape, "flag")
        cases += [
            case("_npi_where", flag, real(*x), real(*y), **more),
            back(
                "_backward_np_where",
                "g0 i0",
                *(flag, real(*x), real(*y)),
                forward="_npi_where",
                grads="i1 i2",
                **more,
            ),
        ]
        for side in ("l", "r"):
            options = {**more, "attrs": scalar, "forward": f"_npi_where_{side}scalar"}
            cases += [
                case(f"_npi_where_{side}scalar", flag, real(*x), attrs=scalar, **more),
                back(
                    f"_backward_np_where_{side}scalar",
                    "g0 i0",
                    flag,
                    real(*x),
                    grads="i1",
                    **options,
                ),
            ]
    for mask, start in (((6, 4), "0"), ((6,), "0"), ((4,), "1")):
        inputs = real(6, 4), In(mask, "flag", dtype="bool")
        attrs = {"value": "7", "start_axis": start}
        cases.append(
            case("_npi_boolean_mask_assign_scalar", *inputs, attrs=attrs, in_place=True, **more)
        )
    return cases


def _made() -> list[Case]:
    cases = []
    for name in ("_npi_zeros", "_npi_ones"):
        for shape, expect in (("(6, 4)", "i0 i1"), ("()", "")):
            cases.append(case(name, attrs={"shape": shape}, numpy=True, expect=expect))
    more: dict[str, Any] = {"numpy": True, "expect": ""}
    cases += [
        case("_npi_eye", attrs={"N": "6", "M": "4"}, **more),
        case("_npi_identity", attrs={"shape": "(6, 6)"}, **more),
        case("_npi_arange", attrs={"start": "0", "stop": "6"}, **more),
        case("_npi_logspace", attrs={"start": "0", "stop": "1", "num": "6"}, **more),
        case("_npi_indices", attrs={"dimensions": "(6, 4)"}, **more),
        case("_npi_diag_indices_from", real(6, 6), **more),
    ]
    cases += [
        case(f"_npi_{n}", attrs={"M": "6"}, **more) for n in ("hanning", "hamming", "blackman")
    ]
    return cases


CASES = [*_elementwise(), *_broadcast(), *_made()]
