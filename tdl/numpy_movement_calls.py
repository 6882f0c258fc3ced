"""Example calls of NumPy's operators that move elements, and of their gradients."""

from __future__ import annotations

from typing import Any

from tofu.lang.example_calls import Case, In, back, case, real

__all__ = ["CASES"]


def _plain(op: str, *inputs: In, attrs: Any = None, expect: Any = None, **more: Any) -> Case:
    return case(op, *inputs, attrs=attrs, expect=expect, numpy=True, **more)


def _both(forward: str, backward: str, *inputs: In, **more: Any) -> list[Case]:
    """An operator and its gradient, which reads only the head gradient."""
    expect = more.pop("expect", None)
    options = {"expect": more.pop("grads", expect), "imperative": more.pop("imperative", False)}
    return [
        _plain(forward, *inputs, expect=expect, **more),
        back(backward, "g0", *inputs, forward=forward, numpy=True, **options, **more),
    ]


def _moved() -> list[Case]:
    data = real(6, 4, 2)
    every = "i0 i1 i2"
    cases = [
        _plain("_np_transpose", data, attrs={"axes": "(2, -3, 1)"}, expect=every),
        _plain("_np_transpose", data, expect=every),
        _plain("_np_squeeze", real(2, 1, 4), expect="i0 i1"),
        _plain("_np_squeeze", real(2, 3), expect="i0 i1"),
        _plain("_np_squeeze", real(1, 1), expect=""),
        _plain("_np_squeeze", real(1, 6, 1), attrs={"axis": "(0,)"}, expect="i0"),
        _plain("_np_reshape", data, attrs={"newshape": "(24, 2)"}, expect="f0 f2"),
        _plain("_npx_reshape", data, attrs={"newshape": "(-5, -4)"}),
        _plain("_npx_reshape", data, attrs={"newshape": "(3, -1)", "reverse": "True"}),
        _plain(
            "_np_moveaxis", data, attrs={"source": "(0, -1)", "destination": "(1, 0)"}, expect=every
        ),
        _plain("_np_roll", data, attrs={"shift": "(2,)", "axis": "(1,)"}, expect="i0 i2"),
        _plain("_np_roll", data, attrs={"shift": "(2, 1)", "axis": "(0, -1)"}, expect="i1"),
        _plain("_np_roll", data, attrs={"shift": "(3,)"}, expect=""),
    ]
    for axis in ("(1,)", "(0, 2)"):
        options = {"attrs": {"axis": axis}, "expect": every}
        cases += _both("_npi_flip", "_backward_npi_flip", data, **options)
    for k in range(4):
        attrs = {"k": str(k), "axes": "(2, 0)"}
        cases.append(_plain("_npi_rot90", data, attrs=attrs, expect=every))
    cases.append(
        _plain("_npi_rot90", real(6, 4), attrs={"k": "-1", "axes": "(0, 1)"}, expect="i0 i1")
    )
    return cases


def _joined() -> list[Case]:
    two = {"num_args": "2"}
    cases = [_plain("_npi_stack", real(6, 4), real(6, 4), attrs={**two, "axis": "-1"})]
    for name, shapes, dim, expect in (
        ("concatenate", ((6, 4), (6, 2)), "1", "i0"),
        ("concatenate", ((4, 6, 2), (2, 6, 2)), "0", "i1 i2"),
        ("hstack", ((6, 4), (6, 2)), None, "i0"),
        ("hstack", ((6,), (4,)), None, ""),
        ("vstack", ((6, 4), (2, 4)), None, "i1"),
        ("vstack", ((6,), (6,)), None, "i1"),
        ("dstack", ((6, 4, 2), (6, 4, 1)), None, "i0 i1"),
        ("dstack", ((6, 4), (6, 4)), None, "i0 i1"),
        ("dstack", ((6,), (6,)), None, "i1"),
        ("column_stack", ((6, 4), (6, 2)), None, "i0"),
        ("column_stack", ((6,), (6, 2)), None, "i0"),
    ):
        attrs = two if dim is None else {**two, "axis": dim}
        inputs = [real(*s) for s in shapes]
        backward = "concat" if name == "concatenate" else name
        # MXNet's shape inference of these two operators loses the sizes of their inputs.
        options = {
            "attrs": attrs,
            "expect": expect,
            "imperative": name not in ("concatenate", "vstack"),
        }
        cases += _both(f"_npi_{name}", f"_backward_np_{backward}", *inputs, **options)
    for name, shape, axis, indices in (
        ("hsplit", (6, 4), "1", "(0, 1)"),
        ("hsplit", (6,), "0", "(0, 2)"),
        ("dsplit", (6, 2, 4), "2", "(0, 1)"),
    ):
        attrs = {"indices": indices, "axis": axis}
        cases.append(_plain(f"_npi_{name}", real(*shape), attrs=attrs, outputs=2))
        if name == "hsplit":
            options = {"attrs": attrs, "forward": "_npi_hsplit", "outputs": 2, "numpy": True}
            cases.append(back("_npi_hsplit_backward", "g0 g1", real(*shape), **options))
    for rank in (1, 2, 3):
        inputs = [real(), real(6), real(4, 9), real(10, 3, 8)]  # nothing in common
        attrs = {"num_args": "4"}
        cases.append(_plain(f"_np_atleast_{rank}d", *inputs, attrs=attrs, outputs=4))
    return cases


def _diagonals() -> list[Case]:
    cases = []
    for shape, attrs, expect in (
        ((6, 6), {}, ""),
        ((6, 7), {"offset": "1"}, ""),
        ((7, 6), {"offset": "-1"}, ""),
        ((6, 2, 4), {"axis1": "-1", "axis2": "0"}, "i1"),
    ):
        cases.append(_plain("_np_diagonal", real(*shape), attrs=attrs))
        cases.append(
            back(
                "_backward_np_diagonal",
                "g0",
                real(*shape),
                forward="_np_diagonal",
                attrs=attrs,
                expect=expect,
                numpy=True,
            )
        )
    for shape, offset in (((6,), "1"), ((6, 6), "0")):
        for name in ("diag", "diagflat"):
            options = {"forward": f"_np_{name}", "attrs": {"k": offset}, "numpy": True}
            options["imperative"] = name == "diag"  # no gradient of an operator's
            cases.append(_plain(f"_np_{name}", real(*shape), attrs={"k": offset}))
            cases.append(back(f"_backward_np_{name}", "g0", real(*shape), expect="", **options))
    cases += _both("_npi_tril", "_backward_tril", real(2, 6, 4), attrs={"k": "1"}, expect="v0")
    cases += _both("_npi_tril", "_backward_tril", real(6), expect="")
    return cases


def _borders() -> list[Case]:
    data = real(6, 4, 2)
    cases = []
    width = "((0, 0), (1, 2), (0, 0))"
    for mode, expect in (("constant", "i0 i1 i2"), ("edge", "i0 i2"), ("reflect", "i0 i2")):
        attrs = {"pad_width": width, "mode": mode, "constant_value": "3"}
        cases.append(_plain("_npi_pad", data, attrs=attrs, expect=expect))
    plain = {"forward": "_npi_pad", "attrs": {"pad_width": width}, "numpy": True}
    cases.append(back("_backward_npi_pad", "g0", data, expect="i0 i2", **plain))
    after = {"pad_width": "((0, 3), (0, 0), (0, 1))"}
    cases.append(_plain("_npi_pad", data, attrs=after, expect="i0 i1 i2"))
    plain = {"forward": "_npi_pad", "attrs": after, "numpy": True}
    cases.append(back("_backward_npi_pad", "g0", data, expect="i0 i1 i2", **plain))
    both = {"pad_width": "((2, 2), (1, 1), (0, 0))"}
    cases.append(_plain("_npi_pad", data, attrs=both, expect="i0 i1 i2"))
    at = {"int_ind": "2", "axis": "1"}
    few = {"start": "0", "stop": "3", "step": "2", "axis": "1"}
    indices = In((3,), "int", 4, dtype="int64")
    cases += [
        # A number as an attribute (val) crashes MXNet if there are several dimensions.
        _plain("_npi_insert_scalar", data, real(1), attrs=at, expect="i0 i2"),
        _plain("_npi_insert_scalar", data, real(1), attrs={"int_ind": "5"}, expect=""),
        _plain("_npi_insert_slice", data, real(1), attrs=few, expect="i0 i2"),
        _plain("_npi_insert_slice", data, real(6, 2, 2), attrs=few, expect="i0 i2"),
        _plain("_npi_insert_slice", data, real(2, 1), attrs=few, expect="i0 i2"),
        _plain("_npi_insert_scalar", data, real(6, 2), attrs=at, expect=""),
        _plain("_npi_insert_tensor", data, real(1), indices, attrs={"axis": "1"}, expect="i0 i2"),
        _plain("_npi_insert_tensor", data, real(3, 2), indices, attrs={"axis": "1"}),
    ]
    return cases


CASES = [*_moved(), *_joined(), *_diagonals(), *_borders()]
