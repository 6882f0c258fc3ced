"""Describes scale_columns and its gradient to tofu (docs/own-operators.md)."""

import sys
from pathlib import Path

import tofu
from tofu.verify import In, case

sys.path.append(str(Path(__file__).parent))
import scale_columns_operator  # noqa: F401  (loads the operator, for tofu verify)


@tofu.op(name="scale_columns")
def scale_columns(x, s):
    """Every element times the scale of its column."""
    return lambda i, j: x[i, j] * s[j]


@tofu.op(name="_backward_scale_columns")
def backward_scale_columns(grad, x, s, out):
    """MXNet gives the gradient the inputs and the output, too."""
    return (
        lambda i, j: grad[i, j] * s[j],
        lambda j: tofu.Sum(lambda i: grad[i, j] * x[i, j]),
    )


# MXNet runs the gradient of such an operator only together with it: tofu check compares that.
CASES = [case("scale_columns", In((6, 4)), In((4,)))]
