"""Example calls of linear algebra, and of its gradients."""

from __future__ import annotations

from itertools import product
from typing import Any

from tofu.lang.example_calls import Case, In, back, case, positive, real

__all__ = ["CASES"]


def _definite(*shape: int) -> In:
    return In(shape, "definite")


def _products() -> list[Case]:
    cases = []
    scale = {"alpha": "0.5", "beta": "0.3"}
    for a, b in product((False, True), (False, True)):
        attrs = {"transpose_a": str(a), "transpose_b": str(b), **scale}
        lhs = real(2, 6, 4) if a else real(2, 4, 6)
        rhs = real(2, 8, 6) if b else real(2, 6, 8)
        out = real(2, 4, 8)
        options: dict[str, Any] = {"attrs": attrs, "expect": "b0 i j k"}
        cases.append(case("_linalg_gemm", lhs, rhs, out, **options))
        cases.append(back("_backward_linalg_gemm", "g0 i0 i1 i2", lhs, rhs, out, **_of(options)))
        options = {**options, "attrs": {k: v for k, v in attrs.items() if k != "beta"}}
        cases.append(case("_linalg_gemm2", lhs, rhs, **options))
        cases.append(back("_backward_linalg_gemm2", "g0 i0 i1", lhs, rhs, **_of(options)))
    apart = {"axis": "0", "alpha": "2"}
    inputs = real(4, 2, 6), real(6, 2, 8)
    cases.append(case("_linalg_gemm2", *inputs, attrs=apart, expect="i b1 j k"))
    cases.append(back("_backward_linalg_gemm2", "g0 i0 i1", *inputs, **_of({"attrs": apart})))
    for transpose in ("False", "True"):
        attrs = {"transpose": transpose, "alpha": "0.5"}
        inputs = (real(2, 4, 6),)
        cases.append(case("_linalg_syrk", *inputs, attrs=attrs, expect="v0 k"))
        cases.append(back("_backward_linalg_syrk", "g0 i0", *inputs, **_of({"attrs": attrs})))
    cases.append(case("khatri_rao", real(6, 4), real(2, 4), attrs={"num_args": "2"}))
    cases.append(case("khatri_rao", *[real(2, 6)] * 3, attrs={"num_args": "3"}))
    return cases


def _of(options: dict[str, Any]) -> dict[str, Any]:
    return {"expect": None, **options}


def _solvers() -> list[Case]:
    cases = []
    square = _definite(2, 4, 4)
    for name in ("trmm", "trsm"):
        for right, transpose in product(("False", "True"), ("False", "True")):
            attrs = {"rightside": right, "transpose": transpose, "lower": transpose, "alpha": "2"}
            operand = real(2, 6, 4) if right == "True" else real(2, 4, 6)
            expect = "b0 i" if right == "True" else "b0 j"
            options: dict[str, Any] = {"attrs": attrs, "expect": expect}
            cases.append(case(f"_linalg_{name}", square, operand, **options))
            reads = "g0 i0 i1 o0" if name == "trsm" else "g0 i0 i1"
            cases.append(back(f"_backward_linalg_{name}", reads, square, operand, **options))
    operand = real(2, 4, 6)
    options = {"numpy": True, "expect": "b0 j"}
    cases.append(case("_npi_solve", square, operand, **options))
    cases.append(case("_npi_solve", square, real(2, 4), numpy=True, expect="b0"))
    options.update(forward="_npi_solve", imperative=True)
    cases.append(back("_backward_npi_solve", "g0 i0 i1 o0", square, operand, **options))
    return cases


def _factorisations() -> list[Case]:
    square, batch = _definite(6, 4, 4), {"expect": "b0"}
    cases = []
    for name, reads, outputs in (
        ("potrf", "g0 o0", 1),
        ("potri", "g0 i0 o0", 1),
        ("gelqf", "g0 g1 o0 o1", 2),
        ("syevd", "g0 g1 o0 o1", 2),
        ("inverse", "g0 o0", 1),
        ("det", "g0 o0 o1 o2", 3),
        ("slogdet", "g1 o0 o1 o2 o3", 4),
        ("extracttrian", "g0", 1),
        ("sumlogdiag", "g0 i0", 1),
        ("extractdiag", "g0", 1),
    ):
        more: dict[str, Any] = {"outputs": outputs}
        expect = {"sumlogdiag": "b0 d", "extractdiag": "b0 d"}.get(name, "b0")
        cases.append(case(f"_linalg_{name}", square, expect=expect, **more))
        # The forward operator, run for its shapes only, refuses zeros.
        more.update(forward=f"_linalg_{name}", imperative=True)
        cases.append(back(f"_backward_linalg_{name}", reads, square, **more, **batch))
    offset = {"attrs": {"offset": "1"}}
    cases.append(case("_linalg_extractdiag", real(2, 6, 6), expect="b0", **offset))
    cases.append(case("_linalg_sumlogdiag", _definite(6, 6), expect="d"))
    cases.append(case("_linalg_det", _definite(4, 4), outputs=3, expect=""))
    for name, shape in (("makediag", (6, 4)), ("maketrian", (6, 10))):
        cases.append(case(f"_linalg_{name}", real(*shape), **batch))
        cases.append(back(f"_backward_linalg_{name}", "g0", real(*shape), **batch))
    numpy: dict[str, Any] = {"numpy": True, **batch}
    for name, outputs in (
        ("cholesky", 1),
        ("eig", 2),
        ("eigh", 2),
        ("eigvals", 1),
        ("eigvalsh", 1),
    ):
        cases.append(case(f"_npi_{name}", square, outputs=outputs, **numpy))
    cases += [
        case("_npi_svd", real(6, 2, 4), outputs=3, **numpy),
        back(
            "_backward_npi_svd",
            "g0 g1 g2 o0 o1 o2",
            real(6, 2, 4),
            outputs=3,
            forward="_npi_svd",
            **numpy,
        ),
        case("_npi_pinv_scalar_rcond", real(6, 2, 4), attrs={"rcond": "0.01"}, **numpy),
        case("_npi_pinv", real(6, 2, 4), positive(6), **numpy),
        case("_npi_pinv", real(6, 2, 4), positive(), **numpy),
    ]
    return cases


CASES = [*_products(), *_solvers(), *_factorisations()]
