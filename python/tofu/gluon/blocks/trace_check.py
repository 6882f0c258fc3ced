"""Checks whether a traced block gives the results of its Python code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from . import nesting

__all__ = ["difference", "difference_of_shapes"]

# By type of the outputs: the largest difference allowed, relative to the largest output, and
# absolute. Parts are added up in another order, and layers amplify rounding; a trace that computes
# something else differs by far more.
_TOLERANCES = {"float64": (1e-7, 1e-12), "float32": (1e-3, 1e-6), "float16": (5e-2, 1e-3)}


def difference(eager: Any, traced: Any) -> Optional[str]:
    """Describe how the results of two calls differ; None if they do not.

    Args:
        eager: the results of the Python code.
        traced: the results of the trace for the same inputs.
    """
    arrays, pattern = nesting.flatten(eager)
    others, traced_pattern = nesting.flatten(traced)
    described = difference_of_shapes(
        arrays, pattern, [(o.shape, np.dtype(o.dtype)) for o in others], traced_pattern
    )
    if described is not None:
        return described
    for number, (array, other) in enumerate(zip(arrays, others)):
        text = _difference_of_values(array.asnumpy(), other.asnumpy())
        if text is not None:
            return f"output {number} differs {text}"
    return None


def difference_of_shapes(
    arrays: Sequence[Any], pattern: Any, expected: Sequence[Any], expected_pattern: Any
) -> Optional[str]:
    """Describe how nesting, shapes and types differ; None if they do not.

    Args:
        arrays: the results of the Python code, flattened.
        pattern: their nesting.
        expected: shape and type of each output of the trace.
        expected_pattern: their nesting.
    """
    if pattern != expected_pattern:
        return "its outputs are nested otherwise"
    for number, (array, (shape, dtype)) in enumerate(zip(arrays, expected)):
        if array.shape != tuple(shape) or np.dtype(array.dtype) != dtype:
            return (
                f"output {number} is {tuple(shape)} {dtype} where the eager one is "
                f"{array.shape} {np.dtype(array.dtype)}"
            )
    return None


def _difference_of_values(eager: Any, traced: Any) -> Optional[str]:
    if eager.dtype.name not in _TOLERANCES:
        return None if np.array_equal(eager, traced) else "in whole numbers"
    relative, absolute = _TOLERANCES[eager.dtype.name]
    finite = np.isfinite(eager)
    if not np.array_equal(eager[~finite], traced[~finite], equal_nan=True):
        return "where it is not finite"
    eager, traced = eager[finite].astype(np.float64), traced[finite].astype(np.float64)
    if not eager.size:
        return None
    largest, allowed = np.abs(eager - traced).max(), relative * np.abs(eager).max() + absolute
    return None if largest <= allowed else f"by {largest:.2g}, expected at most {allowed:.2g}"
