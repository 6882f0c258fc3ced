"""Operators that no description covers, each with its reason, by family."""

from __future__ import annotations

__all__ = ["REASONS"]

_ONE_INPUT = "registered with one input, its kernel reads two: a fault of MXNet"

_NUMPY = {
    "_backward_npi_copysign_scalar": _ONE_INPUT,
    "_backward_npi_rcopysign_scalar": _ONE_INPUT,
}

REASONS: dict[str, str] = {**_NUMPY}
