"""MXNet's data types: names and sizes by the type flag that graphs contain.

src/graph/graph.cc has the same table, so reading a graph needs neither MXNet nor NumPy.
"""

from __future__ import annotations

from tofu.errors import GraphError

__all__ = ["NAMES", "dtype_bytes", "dtype_flag", "dtype_name"]

_SIZES = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "uint8": 1,
    "int32": 4,
    "int8": 1,
    "int64": 8,
    "bool": 1,
    "int16": 2,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bfloat16": 2,
    "complex64": 8,  # MXNet has no complex numbers
    "complex128": 16,
}
NAMES = tuple(_SIZES)  # the position is MXNet's type flag


def dtype_name(flag: int) -> str:
    """The name of a type flag. Raises GraphError for any other number."""
    if not 0 <= flag < len(NAMES):
        raise GraphError(f"dtype {flag}: expected MXNet's type flag, 0 to {len(NAMES) - 1}")
    return NAMES[flag]


def dtype_bytes(flag: int) -> int:
    """The size of an element in bytes, by type flag. Raises GraphError for any other number."""
    return _SIZES[dtype_name(flag)]


def dtype_flag(name: str) -> int:
    """The type flag of a dtype. Raises GraphError for a name that MXNet does not have."""
    if name not in _SIZES:
        raise GraphError(f"dtype {name}: expected one of {', '.join(NAMES)}")
    return NAMES.index(name)
