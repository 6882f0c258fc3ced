"""Marks of arrays that say whether a backward pass has computed their gradients.

MXNet's arrays have them as the property ``_fresh_grad``. A step reads and sets those of all tiles
twice, so they are called here without the property.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

from mxnet.base import _LIB, check_call

__all__ = ["marks_of", "set_marks"]

_MARKED, _UNMARKED = ctypes.c_int(1), ctypes.c_int(0)


def marks_of(arrays: Iterable[Any]) -> list[bool]:
    """Whether each array is marked."""
    is_marked, get = ctypes.c_int(), _LIB.MXNDArrayGetGradState
    into = ctypes.byref(is_marked)
    marks = []
    for array in arrays:
        check_call(get(array.handle, into))
        marks.append(is_marked.value != 0)
    return marks


def set_marks(arrays: Sequence[Any], marks: Sequence[bool]) -> None:
    """Mark each array, or take its mark away."""
    put = _LIB.MXNDArraySetGradState
    for array, mark in zip(arrays, marks):
        check_call(put(array.handle, _MARKED if mark else _UNMARKED))
