"""Element-wise operators with broadcasting, of tensors and numbers, and their gradients."""

from __future__ import annotations

import functools
import operator

from tofu.lang import apply, op
from tofu.tdl._shapes import broadcast

# Described one by one, so that the analysis sees where terms of a sum pass through.
_LINEAR = (
    *("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.mul.Scalar"),
    *("aten.div.Tensor", "aten.div.Scalar", "aten.neg.default"),
)

_UNARY = (
    *("abs", "neg", "sign", "sgn", "ceil", "floor", "round", "trunc", "frac", "reciprocal"),
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
    *("atanh", "erf", "erfc", "erfinv", "sigmoid", "relu", "relu6", "silu", "gelu", "mish"),
    *("hardtanh", "hardswish", "hardsigmoid", "leaky_relu", "elu", "softplus", "threshold"),
    *("log_sigmoid_forward", "logit", "clone", "detach", "alias", "lift_fresh_copy", "_to_copy"),
    *("isnan", "isinf", "isfinite", "logical_not", "bitwise_not", "nan_to_num", "clamp"),
    *("clamp_min", "clamp_max", "sinc", "lgamma", "digamma", "hardshrink", "positive"),
    *("contiguous", "copy", "zeros_like", "ones_like", "full_like", "empty_like", "rand_like"),
    *("randn_like", "bernoulli", "native_dropout", "conj_physical", "_conj", "softshrink"),
    *("addcmul", "addcdiv", "logical_and", "logical_or", "logical_xor", "maximum", "minimum"),
    *("atan2", "fmod", "where", "masked_fill", "prelu", "_prelu_kernel", "hypot"),
    *("deg2rad", "rad2deg", "signbit", "angle", "isposinf", "isneginf", "celu", "zero", "i0"),
    *("polygamma", "mvlgamma", "fmax", "fmin", "heaviside", "logaddexp", "logaddexp2", "lcm"),
    *("gcd", "nextafter", "igamma", "igammac", "alias_copy", "detach_copy", "polar", "complex"),
)
# torch.special's.
_SPECIAL = (
    *("i0e", "i1", "i1e", "entr", "ndtri", "log_ndtr", "erfcx", "airy_ai", "xlog1py", "zeta"),
    *(f"bessel_{letter}{order}" for letter in "jy" for order in (0, 1)),
    *(f"{scaled}modified_bessel_k{order}" for scaled in ("", "scaled_") for order in (0, 1)),
    *("modified_bessel_i0", "modified_bessel_i1", "spherical_bessel_j0"),
    *(f"{s}chebyshev_polynomial_{kind}" for s in ("", "shifted_") for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"),
    "legendre_polynomial_p",
)
# Overloads for tensors, for a tensor and a number, and either way round.
_BINARY = (
    *("add", "sub", "mul", "div", "pow", "remainder", "fmod", "floor_divide", "rsub"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne", "lt", "le", "gt", "ge", "xlogy"),
    *("clamp", "clamp_min", "clamp_max", "copysign", "lerp", "bitwise_left_shift"),
    *("bitwise_right_shift", "ldexp", "frexp"),
)
_OVERLOADS = (
    *("Tensor", "Scalar", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor", "Tensor_mode"),
    *("Scalar_mode", "Scalar_Self", "Scalar_Other"),
)
_OTHER = (
    *("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar", "fill.Scalar"),
    *("masked_fill.Scalar", "masked_fill.Tensor", "fill.Tensor", "bernoulli.p"),
    *("round.decimals", "pow.Tensor_Tensor", "floor_divide.default"),
)
_GRADIENTS = (
    *("threshold", "tanh", "sigmoid", "silu", "gelu", "mish", "hardtanh", "hardswish"),
    *("hardsigmoid", "leaky_relu", "elu", "softplus", "log_sigmoid", "logit", "native_dropout"),
    *("hardshrink", "softshrink", "_prelu_kernel"),
)
_NAMES = dict.fromkeys(
    [
        *(f"aten.{name}.default" for name in _UNARY),
        *(f"aten.{name}.{overload}" for name in _BINARY for overload in _OVERLOADS),
        *(f"aten.{name}" for name in _OTHER),
        *(f"aten.special_{name}.default" for name in _SPECIAL),
        *(f"aten.{name}_backward.default" for name in _GRADIENTS),
        "aten.leaky_relu_backward.grad_input",
    ]
)


def _elements(tensors, function, out_shapes):
    """Makes each element of a function of the inputs' elements at its index."""
    ones = out_shapes[0].ones
    return lambda *i: function(*(broadcast(x, i, ones) for x in tensors))


@op(name=tuple(name for name in _NAMES if name not in _LINEAR))
def pointwise(*tensors, out_shapes):
    """Every output's element is a function of the inputs' elements at its index."""
    function = functools.partial(apply, "pointwise")
    return (_elements(tensors, function, out_shapes),) * len(out_shapes)


def _with_number(x):
    """A function of a tensor's element and a number."""
    return apply("pointwise", x)


@op(name="aten.add.Tensor")
def added(*tensors, out_shapes):
    """The sum of two tensors, or of a tensor and a number; the second one may be scaled."""
    function = operator.add if len(tensors) > 1 else _with_number
    return _elements(tensors, function, out_shapes)


@op(name="aten.sub.Tensor")
def difference(*tensors, out_shapes):
    """The difference of two tensors, or of a tensor and a number; the second may be scaled."""
    function = operator.sub if len(tensors) > 1 else _with_number
    return _elements(tensors, function, out_shapes)


@op(name=("aten.mul.Tensor", "aten.mul.Scalar"))
def product(*tensors, out_shapes):
    """The product of two tensors, or of a tensor and a number, which stands as 1 here."""
    return _elements(tensors, lambda x, y=1: x * y, out_shapes)


@op(name=("aten.div.Tensor", "aten.div.Scalar"))
def quotient(*tensors, given="self", out_shapes):
    """The quotient of two tensors, or of a tensor and a number, which stands as 1 here."""
    function = _with_number if given == "other" else lambda x, y=1: x / y
    return _elements(tensors, function, out_shapes)


@op(name="aten.neg.default")
def negative(data):
    """The negative of every element."""
    return lambda *i: -data[i]
