"""Element-wise operators with broadcasting, of tensors and numbers, and their gradients."""

from __future__ import annotations

from tofu.lang import apply, op
from tofu.tdl._shapes import broadcast

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
)
# Overloads for tensors, for a tensor and a number, and either way round.
_BINARY = (
    *("add", "sub", "mul", "div", "pow", "remainder", "fmod", "floor_divide", "rsub"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "eq", "ne", "lt", "le", "gt", "ge", "xlogy"),
    *("clamp", "clamp_min", "clamp_max", "copysign", "lerp"),
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
        *(f"aten.{name}_backward.default" for name in _GRADIENTS),
        "aten.leaky_relu_backward.grad_input",
    ]
)


@op(name=tuple(_NAMES))
def pointwise(*tensors, out_shapes):
    """Every output's element is a function of the inputs' elements at its index."""
    ones = out_shapes[0].ones

    def element(*i):
        return apply("pointwise", *(broadcast(x, i, ones) for x in tensors))

    return (element,) * len(out_shapes)
