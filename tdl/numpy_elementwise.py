"""NumPy's element-wise, broadcasting and creation operators, and gradients.

Descriptions of MXNet's classic operators also cover NumPy's where both compute the same.
"""

from __future__ import annotations

from tofu.lang import apply, like, op
from tofu.tdl._shapes import broadcast, broadcast_ones, unbroadcast
from tofu.tdl.broadcast import broadcast_to
from tofu.tdl.creation import arange, eye, filled
from tofu.tdl.elementwise import binary, constant_like, unary

_UNARY = (
    *("absolute", "negative", "reciprocal", "sign", "rint", "ceil", "floor", "trunc", "fix"),
    *("bitwise_not", "logical_not", "square", "sqrt", "cbrt", "exp", "expm1", "around"),
    *("log", "log10", "log2", "log1p", "isnan", "isinf", "isposinf", "isneginf", "isfinite"),
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh"),
    *("arccosh", "arctanh", "degrees", "radians", "nan_to_num", "where_scalar2"),
)
_SCALAR = (
    *("add", "subtract", "rsubtract", "multiply", "true_divide", "rtrue_divide", "mod", "rmod"),
    *("power", "rpower", "copysign", "rcopysign", "arctan2", "rarctan2", "ldexp", "rldexp"),
    *("lcm", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"),
)
_BROADCAST = (
    *("add", "subtract", "multiply", "true_divide", "mod", "power", "copysign", "arctan2"),
    *("hypot", "ldexp", "lcm", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"),
    *("where", "where_lscalar", "where_rscalar"),
)
_GRADIENTS_OF_SCALAR = ("arctan2_scalar", "rarctan2_scalar", "ldexp_scalar", "rldexp_scalar")
_GRADIENTS = (
    *("_backward_npi_broadcast_add", "_backward_npi_broadcast_sub", "_backward_npi_broadcast_mul"),
    *("_backward_npi_broadcast_div", "_backward_npi_broadcast_mod", "_backward_npi_arctan2"),
    *("_backward_npi_broadcast_power", "_backward_npi_copysign", "_backward_npi_hypot"),
    *("_backward_npi_ldexp", "_backward_np_where", "_backward_np_broadcast_to"),
    *("_backward_np_where_lscalar", "_backward_np_where_rscalar"),
)

unary.serves(*(f"_npi_{name}" for name in _UNARY), *(f"_npi_{name}_scalar" for name in _SCALAR))
unary.serves("_np_copy", "_npx_relu", "_npx_sigmoid")
binary.serves(*(f"_backward_npi_{name}" for name in _GRADIENTS_OF_SCALAR))
binary.serves("_npi_backward_nan_to_num")
unary.serves("_backward_npi_copysign_scalar", "_backward_npi_rcopysign_scalar")
constant_like.serves("_npi_full_like")
broadcast_to.serves("_npi_broadcast_to")
filled.serves("_npi_zeros", "_npi_ones")
eye.serves("_npi_eye", "_npi_identity")
arange.serves("_npi_arange", "_npi_logspace", "_npi_hanning", "_npi_hamming", "_npi_blackman")


@op(name=tuple(f"_npi_{name}" for name in _BROADCAST))
def broadcast_all(*args):
    """A function of one element of each tensor; a dimension of size 1 serves every index."""
    ones = broadcast_ones(*args)
    return lambda *i: apply("of", *(broadcast(x, i, ones) for x in args))


@op(name=_GRADIENTS)
def backward_broadcast_all(*args, out_shapes):
    """Functions of the head gradient and others, summed over the broadcast dimensions."""
    ones = args[0].ones

    def element(*i):
        return apply("by", *(broadcast(x, i, ones) for x in args))

    return tuple(unbroadcast(s.ones, ones, element) for s in out_shapes)


@op(name="_npi_boolean_mask_assign_scalar")
def boolean_mask_assign_scalar(data, mask, *, start_axis=0):
    """A constant where a mask of some of the dimensions is true."""
    end = start_axis + mask.ndim
    return lambda *i: apply("unless", data[i], mask[i[start_axis:end]])


@op(name="_npi_indices")
def indices():
    """The position of every element along dimension k."""
    return lambda k, *i: apply("at", k, *i)


@op(name="_npi_diag_indices_from")
def diag_indices_from(data):
    """The positions of a diagonal, as many as the tensor has."""
    return lambda k, i: like(apply("at", k, i), data[(i,) * data.ndim])
