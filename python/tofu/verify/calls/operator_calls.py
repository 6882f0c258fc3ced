"""Example calls of every described operator."""

from __future__ import annotations

import functools
import importlib

from tofu.analysis.described import load_described
from tofu.analysis.table import described_name
from tofu.lang.example_calls import Case

__all__ = ["NOT_RUN", "cases_by_operator", "shipped_cases"]

_GPU = "MXNet has it for GPUs only"
# Described operators that verification cannot run, and why.
NOT_RUN = {
    **dict.fromkeys(("_contrib_fft", "_contrib_ifft", "_contrib_count_sketch"), _GPU),
    "_backward__contrib_fft": _GPU,
    "_backward__contrib_ifft": _GPU,
    "_backward__contrib_count_sketch": _GPU,
    "_backward__contrib_ModulatedDeformableConvolution": _GPU,
    "_contrib_quantize_asym": "MXNet crashes",
    "_contrib_quantized_rnn": "its inputs are made by MXNet's own quantization only",
    "_backward_npi_copysign_scalar": "MXNet gives it two inputs and it takes one",
    "_backward_npi_rcopysign_scalar": "MXNet gives it two inputs and it takes one",
    "_backward_add": "no gradient uses it, and MXNet crashes",
}


@functools.cache
def shipped_cases() -> tuple[Case, ...]:
    """Returns the cases of tofu's own descriptions: ``tdl/FAMILY.py`` has ``FAMILY_calls.py``."""
    families = importlib.import_module("tofu.tdl").__all__
    modules = [importlib.import_module(f"tofu.tdl.{family}_calls") for family in families]
    return tuple(case for module in modules for case in module.CASES)


def cases_by_operator() -> dict[str, list[Case]]:
    """Registers the descriptions and returns the cases of each described operator.

    Other modules and files with descriptions list their cases in ``CASES``.
    """
    cases = list(shipped_cases())
    for module in load_described():
        cases += getattr(module, "CASES", [])
    by_operator: dict[str, list[Case]] = {}
    for case in cases:
        name, _ = described_name(case.op, case.attrs)
        by_operator.setdefault(name, []).append(case)
    return by_operator
