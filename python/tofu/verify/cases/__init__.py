"""Sample shapes and attributes of every described operator.

Sizes are multiples of 6 where a dimension is to be split in 2, 3 or 6 parts.
"""

from tofu.verify.cases import (
    batched,
    broadcast,
    elementwise,
    layers,
    linear,
    movement,
    numpy_elementwise,
    numpy_reduction,
    rest,
)

ALL = [
    *elementwise.CASES,
    *broadcast.CASES,
    *linear.CASES,
    *layers.CASES,
    *movement.CASES,
    *rest.CASES,
    *numpy_elementwise.CASES,
    *numpy_reduction.CASES,
    *batched.CASES,
]

__all__ = ["ALL"]
