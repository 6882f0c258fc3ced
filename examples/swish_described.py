"""Describes swish and its gradient to tofu, so workers can share them (docs/own-operators.md)."""

import sys
from pathlib import Path

import tofu
from tofu.verify import In, case

sys.path.append(str(Path(__file__).parent))
import swish_operator  # noqa: F401  (registers the operator, for tofu verify)


@tofu.op(name="Custom:swish")
def swish(x):
    """Swish of every element."""
    return lambda i, j: tofu.lang.apply("swish", x[i, j])


@tofu.op(name="_backward_Custom:swish")
def backward_swish(grad, x):
    """The tensors that declare_backward_dependency returns."""
    return lambda i, j: tofu.lang.apply("slope", grad[i, j], x[i, j])


CASES = [
    case("Custom", In((6, 4)), attrs={"op_type": "swish"}),
    case(
        "Custom",
        In((6, 4)),
        In((6, 4)),
        attrs={"op_type": "tofu_gradient", "of": "swish", "arguments": "{}"},
    ),
]
