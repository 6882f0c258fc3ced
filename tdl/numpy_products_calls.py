"""Example calls of NumPy's products, differences and polynomials, and of their gradients."""

from __future__ import annotations

from typing import Any

from tofu.lang.example_calls import Case, back, case, real

__all__ = ["CASES"]

_DOT: tuple[tuple[tuple[int, ...], tuple[int, ...], str], ...] = (
    ((6, 4), (4, 2), "i0 i1 j1"),
    ((2, 6, 4), (4,), "i0 i1 i2"),
    ((6,), (6,), "i0"),
    ((6, 4), (2, 4, 6), "i0 i1 j0 j2"),
    ((), (6, 4), "j0 j1"),
)
_MATMUL: tuple[tuple[tuple[int, ...], tuple[int, ...], str], ...] = (
    ((6, 4), (4, 2), "i k j"),
    ((2, 6, 4), (2, 4, 6), "b0 i k j"),
    ((2, 6, 4), (4, 6), "b0 i k j"),
    ((2, 6, 2, 4), (6, 4, 2), "b0 b1 i k j"),
    ((4,), (4, 6), "k j"),
    ((2, 6, 4), (4,), "b0 i k"),
)
_TENSORDOT: tuple[tuple[str, str, str], ...] = (
    ("(1, 0)", "(0, 1)", "i0 i1 i2 j2"),
    ("(-1,)", "(-1,)", "i0 i1 i2 j0 j1"),
)
_EINSUM: tuple[tuple[str, tuple[tuple[int, ...], ...], str], ...] = (
    ("ij,jk->ik", ((6, 4), (4, 2)), "i j k"),
    ("ij,kj", ((6, 4), (2, 4)), "i j k"),
    ("ij->ji", ((6, 4),), "i j"),
    ("ii->i", ((6, 6),), "i"),
    ("ij->", ((6, 4),), "i j"),
    ("b...i, ...ij -> b...j", ((6, 2, 4), (2, 4, 2)), "b e0 i j"),
    ("ij,jk,kl->il", ((6, 4), (4, 2), (2, 6)), "i j k l"),
)


def _both(forward: str, backward: str, *shapes: tuple[int, ...], **more: Any) -> list[Case]:
    """A product and its gradient. For a diagonal, the splits are checked but not listed."""
    inputs = [real(*s) for s in shapes]
    reads = " ".join(["g0", *(f"i{k}" for k in range(len(inputs)))])
    expect = more.pop("expect")
    return [
        case(forward, *inputs, numpy=True, expect=expect, **more),
        back(backward, reads, *inputs, forward=forward, numpy=True, **more),
    ]


def _products() -> list[Case]:
    cases = []
    for a, b, expect in _DOT:
        cases += _both("_np_dot", "_backward_np_dot", a, b, expect=expect)
    for a, b, expect in _MATMUL:
        cases += _both("_npi_matmul", "_backward_np_matmul", a, b, expect=expect)
    for p, q, expect in _TENSORDOT:
        attrs = {"a_axes_summed": p, "b_axes_summed": q}
        shapes = ((4, 2, 6), (2, 4, 6)) if "0" in p else ((2, 4, 6), (4, 2, 6))
        name = "_npi_tensordot"
        cases += _both(name, f"_backward{name}", *shapes, attrs=attrs, expect=expect)
    for axes, expect in (("1", "i0 i1 j1"), ("0", "i0 i1 j0 j1")):
        name = "_npi_tensordot_int_axes"
        shapes = ((6, 4), (4, 2))
        options: dict[str, Any] = {"attrs": {"axes": axes}, "expect": expect}
        cases += _both(name, f"_backward{name}", *shapes, **options)
    for text, several, expect in _EINSUM:
        attrs = {"subscripts": text, "num_args": str(len(several))}
        name = "_npi_einsum"
        cases += _both(name, f"_backward{name}", *several, attrs=attrs, expect=expect)
    return cases


def _differences() -> list[Case]:
    cases = []
    for n, axis in (("1", "0"), ("2", "-1"), ("2", "1")):
        shape = (7, 4, 2) if axis == "0" else (6, 8, 2) if axis == "1" else (6, 2, 8)
        options: dict[str, Any] = {"attrs": {"n": n, "axis": axis}, "numpy": True}
        cases.append(case("_npi_diff", real(*shape), expect="i0 i1 i2", **options))
        cases.append(back("_backward_npi_diff", "g0", real(*shape), forward="_npi_diff", **options))
    ends = {"to_begin_scalar": "3", "to_end_scalar": "4"}
    for shape, attrs, expect in (((7,), {}, "i"), ((6, 4), {}, ""), ((5,), ends, "")):
        options = {"attrs": attrs, "numpy": True}
        name = "_npi_ediff1d"
        cases.append(case(name, real(*shape), expect=expect, **options))
        cases.append(back("_npi_backward_ediff1d", "g0 i0", real(*shape), forward=name, **options))
    for shape, expect in (((6,), "i0"), ((6, 4), "i0 i1")):
        inputs = real(4), real(*shape)
        options = {"numpy": True, "expect": expect}
        cases.append(case("_npi_polyval", *inputs, **options))
        backward = "_npi_backward_polyval"
        # MXNet does not write the gradient of integers.
        options |= {"forward": "_npi_polyval", "floats": True}
        cases.append(back(backward, "g0 i0 i1", *inputs, **options))
    return cases


CASES = [*_products(), *_differences()]
