"""Element-wise operators: unary, with a scalar, binary; and their gradients."""

from __future__ import annotations

import functools
import operator

from tofu.lang import Over, apply, like, op

_ACTIVATIONS = ("relu", "sigmoid", "hard_sigmoid", "softsign", "tanh", "erf", "erfinv")
_POWERS = ("sqrt", "rsqrt", "cbrt", "rcbrt", "square", "reciprocal")
_EXPONENTIALS = ("exp", "expm1", "log", "log10", "log1p", "log2", "gamma", "gammaln")
_TRIGONOMETRY = (
    *("sin", "cos", "tan", "sinh", "cosh", "degrees", "radians"),
    *("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"),
)
_ROUNDING = ("round", "rint", "ceil", "floor", "trunc", "fix", "sign", "abs")
_BY_VALUE = ("clip", "smooth_l1", "Cast", "amp_cast", "logical_not", "_contrib_quadratic")
_PASSING_ON = (
    *("_copy", "_copyto", "BlockGrad", "make_loss", "MakeLoss", "_contrib_gradientmultiplier"),
    *("_CrossDeviceCopy", "_backward__CrossDeviceCopy"),
    *("_contrib_round_ste", "_contrib_sign_ste"),
)
_CONSTANT = ("zeros_like", "ones_like")

_ARITHMETIC_SCALAR = (
    *("_plus_scalar", "_minus_scalar", "_rminus_scalar"),
    *("_rdiv_scalar", "_mod_scalar", "_rmod_scalar", "_power_scalar", "_rpower_scalar"),
    *("_maximum_scalar", "_minimum_scalar", "_hypot_scalar"),
    *("_scatter_plus_scalar", "_scatter_minus_scalar"),
)
_LOGIC_SCALAR = (
    *("_equal_scalar", "_not_equal_scalar", "_greater_scalar", "_greater_equal_scalar"),
    *("_lesser_scalar", "_lesser_equal_scalar"),
    *("_logical_and_scalar", "_logical_or_scalar", "_logical_xor_scalar"),
)

_ARITHMETIC = (*("_maximum", "_minimum", "_hypot", "_mod", "_power", "_scatter_elemwise_div"),)
_LOGIC = (
    *("_equal", "_not_equal", "_greater", "_greater_equal", "_lesser", "_lesser_equal"),
    *("_logical_and", "_logical_or", "_logical_xor"),
)

# Gradients of one input: functions of the head gradient, alone or with the input or output.
_GRADIENT = (
    *("_backward_cast", "_backward_amp_cast", "_backward_mul_scalar", "_backward_div_scalar"),
    "_contrib_backward_gradientmultiplier",
)
_GRADIENT_AND_VALUE = (
    *(f"_backward_{name}" for name in (*_ACTIVATIONS, *_POWERS, *_TRIGONOMETRY)),
    *(f"_backward_{name}" for name in _EXPONENTIALS if name != "exp"),
    *(f"_backward_{name}" for name in ("abs", "sign", "clip", "smooth_l1")),
    *("_backward_rdiv_scalar", "_backward_mod_scalar", "_backward_rmod_scalar"),
    *("_backward_power_scalar", "_backward_rpower_scalar", "_backward_hypot_scalar"),
    *("_backward_maximum_scalar", "_backward_minimum_scalar", "_contrib_backward_quadratic"),
)
_GRADIENTS_OF_TWO = tuple(
    f"_backward_{name}" for name in ("mul", "div", "maximum", "minimum", "hypot", "mod", "power")
)


@op(
    name=(
        *(*_ACTIVATIONS, *_POWERS, *_EXPONENTIALS, *_TRIGONOMETRY, *_ROUNDING),
        *(*_BY_VALUE, *_PASSING_ON, *_ARITHMETIC_SCALAR, *_LOGIC_SCALAR, *_GRADIENT),
    )
)
def unary(x):
    """A function of each element."""
    return lambda *i: apply("unary", x[i])


@op(name=_CONSTANT)
def constant_like(x):
    """A constant in the shape of a tensor."""
    return lambda *i: like(0, x[i])


@op(name=(*_ARITHMETIC, *_LOGIC, *_GRADIENT_AND_VALUE))
def binary(x, y):
    """A function of two elements at one index."""
    return lambda *i: apply("binary", x[i], y[i])


@op(name=("elemwise_add", "_grad_add"))
def added(x, y):
    """The sum of two elements at one index."""
    return lambda *i: x[i] + y[i]


@op(name="elemwise_sub")
def difference(x, y):
    """The difference of two elements at one index."""
    return lambda *i: x[i] - y[i]


@op(name="elemwise_mul")
def product(x, y):
    """The product of two elements at one index."""
    return lambda *i: x[i] * y[i]


@op(name="elemwise_div")
def quotient(x, y):
    """The quotient of two elements at one index."""
    return lambda *i: x[i] / y[i]


@op(name="negative")
def negative(x):
    """The negative of each element."""
    return lambda *i: -x[i]


@op(name="_mul_scalar")
def times_number(x, *, scalar=1):
    """Each element times a number."""
    return lambda *i: x[i] * scalar


@op(name="_div_scalar")
def by_number(x, *, scalar=1):
    """Each element divided by a number."""
    return lambda *i: x[i] / scalar


@op(name=_GRADIENTS_OF_TWO)
def backward_binary(ograd, x, y):
    """The gradients of both operands."""
    return (
        lambda *i: apply("by_first", ograd[i], x[i], y[i]),
        lambda *i: apply("by_second", ograd[i], x[i], y[i]),
    )


@op(name=("_backward_add", "_backward_sub"))
def backward_difference(ograd):
    """The head gradient, and it or its negative."""
    return lambda *i: apply("by_first", ograd[i]), lambda *i: apply("by_second", ograd[i])


@op(name="add_n")
def add_n(*args):
    """The sum of any number of tensors."""
    return lambda *i: functools.reduce(operator.add, (x[i] for x in args))


@op(name="_identity_with_attr_like_rhs")
def identity_like(lhs, rhs):
    """The first operand; the second gives its shape."""
    return lambda *i: like(lhs[i], rhs[i])


@op(name=("amp_multicast", "_backward_amp_multicast"))
def each_by_itself(*args):
    """Tensors of any shapes in one type; if all have the same size, they are split together."""
    rank = max(x.ndim for x in args)
    sizes = [{x.shape[d] for x in args if d < x.ndim} for d in range(rank)]

    def own(k, x):
        return [f"i{d}" if len(sizes[d]) == 1 else f"t{k}_{d}" for d in range(x.ndim)]

    return tuple(Over(own(k, x), lambda *i, x=x: apply("cast", x[i])) for k, x in enumerate(args))


@op(name="IdentityAttachKLSparseReg", stateful=True)
def identity_with_penalty(data, moving_avg):
    """The element; each column has its own mean activation."""
    if data.ndim != 2:
        return lambda *i: apply("identity", data[i])
    return lambda n, c: like(data[n, c], moving_avg[c])
