"""Values that expose wrong combinations of parts: distinct, uneven, of both signs."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from tofu.lang.example_calls import In

__all__ = ["values"]

Array = np.ndarray[Any, Any]


def values(spec: In, rng: np.random.Generator, dtype: Optional[str] = None) -> Array:
    """Random values of an input's kind, shape and type (`dtype` if it has none)."""
    size = int(np.prod(spec.shape))
    kind = np.dtype(spec.dtype or dtype or "float64")
    if spec.kind == "int":
        drawn = rng.integers(0, spec.high, size).astype("float64")
    elif spec.kind == "permutation":
        drawn = rng.permutation(size).astype("float64")
    elif spec.kind == "edges":
        drawn = np.linspace(0.0, 1.0, size)
    elif spec.kind == "count":
        drawn = rng.integers(1, spec.high + 1, size).astype("float64")
    elif spec.kind in ("boxes", "rois"):
        drawn = _boxes(spec, rng)
        drawn[:, -4:] *= 8 if spec.kind == "rois" else 1
    elif spec.kind == "share":
        drawn = rng.dirichlet(np.full(spec.shape[-1], 4.0), spec.shape[:-1])
    elif spec.kind == "definite":
        drawn = _definite(spec, rng)
    elif spec.kind == "flag":
        drawn = rng.integers(0, 2, size).astype("float64")
    else:
        drawn = 0.1 + 0.8 * (rng.permutation(size) + rng.uniform(0.1, 0.9, size)) / size
        if kind.kind in "iu":  # no zeros: MXNet ends the process when it divides by one
            # and small: some operators saturate where others wrap around
            drawn = np.floor(1 + drawn * (2 if kind.itemsize == 1 else 7))
        if spec.kind == "real" and kind.kind != "u":
            drawn *= rng.choice([-1.0, 1.0], size)
        if kind.kind == "b":
            drawn = rng.integers(0, 2, size).astype("float64")
    return drawn.reshape(spec.shape).astype(kind)


def _boxes(spec: In, rng: np.random.Generator) -> Array:
    """Corners in the last four columns, after numbers below `high`, or between 0 and 1."""
    *rows, width = spec.shape
    count = int(np.prod(rows))
    before = rng.uniform(0.1, 0.9, (count, width - 4))
    if spec.high:
        before[:, :1] = rng.integers(0, spec.high, (count, min(1, width - 4)))
    low = rng.uniform(0, 0.5, (count, 2))
    boxes: Array = np.concatenate([before, low, low + rng.uniform(0.2, 0.5, (count, 2))], axis=1)
    return boxes


def _definite(spec: In, rng: np.random.Generator) -> Array:
    """Symmetric, positive definite matrices in the last two dimensions."""
    half = rng.uniform(-1, 1, spec.shape)
    matrices: Array = half @ np.swapaxes(half, -1, -2) + np.eye(spec.shape[-1])
    return matrices
