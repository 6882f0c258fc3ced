"""Values that no wrong combination of parts survives: distinct, uneven, of both signs."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from tofu.verify.case import In

__all__ = ["values"]

Array = np.ndarray[Any, Any]


def values(spec: In, rng: np.random.Generator, dtype: Optional[str] = None) -> Array:
    """Random values of an input's kind, shape and type (`dtype` where it names none)."""
    size = int(np.prod(spec.shape))
    kind = np.dtype(spec.dtype or dtype or "float64")
    if spec.kind == "int":
        drawn = rng.integers(0, spec.high, size).astype("float64")
    elif spec.kind == "flag":
        drawn = rng.integers(0, 2, size).astype("float64")
    else:
        drawn = 0.1 + 0.8 * (rng.permutation(size) + rng.uniform(0.1, 0.9, size)) / size
        if spec.kind == "real":
            drawn *= rng.choice([-1.0, 1.0], size)
        if kind.kind in "iu":  # whole numbers, still of both signs where there are any
            drawn = np.rint(drawn * 7)
            drawn = np.abs(drawn) if kind.kind == "u" else drawn
        elif kind.kind == "b":
            drawn = rng.integers(0, 2, size).astype("float64")
    return drawn.reshape(spec.shape).astype(kind)
