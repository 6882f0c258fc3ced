"""Example calls of attention with interleaved heads."""

from __future__ import annotations

from tofu.lang.example_calls import Case, back, case, real

__all__ = ["CASES"]


def _attention() -> list[Case]:
    qkv, weights = real(4, 6, 18), real(12, 4, 4)
    single = {"attrs": {"heads": "2"}, "dtype": "float32", "fixed": True}
    selfatt = {"expect": "n", **single}
    name, gradient = "_contrib_interleaved_matmul", "_backward_interleaved_matmul"
    queries, pairs, between = real(6, 4, 8), real(4, 4, 16), real(8, 6, 4)
    both = {"expect": "n i j", **single}
    return [
        case(f"{name}_selfatt_qk", qkv, **selfatt),
        back(f"{gradient}_selfatt_qk", "g0 i0", qkv, forward=f"{name}_selfatt_qk", **selfatt),
        case(f"{name}_selfatt_valatt", qkv, weights, **selfatt),
        back(
            f"{gradient}_selfatt_valatt",
            "g0 i0 i1",
            *(qkv, weights),
            forward=f"{name}_selfatt_valatt",
            **selfatt,
        ),
        case(f"{name}_encdec_qk", queries, pairs, **both),
        back(
            f"{gradient}_encdec_qk",
            "g0 i0 i1",
            *(queries, pairs),
            forward=f"{name}_encdec_qk",
            **both,
        ),
        case(f"{name}_encdec_valatt", pairs, between, **both),
        back(
            f"{gradient}_encdec_valatt",
            "g0 i0 i1",
            *(pairs, between),
            forward=f"{name}_encdec_valatt",
            **both,
        ),
    ]


CASES = _attention()
