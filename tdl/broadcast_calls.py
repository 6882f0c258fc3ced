"""Example calls of broadcasting operators."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, case, positive, real, words

__all__ = ["CASES"]


BROADCAST = words(
    "add sub mul div mod power maximum minimum hypot equal not_equal greater greater_equal lesser "
    "lesser_equal logical_and logical_or logical_xor"
)


BROADCAST_SHAPES = (
    ((6, 4), (6, 4), "i0 i1"),
    ((6, 4), (1, 4), "i0 i1"),
    ((6, 1), (6, 4), "i0 i1"),
    ((6, 1), (1, 4), "i0 i1"),
    ((2, 6, 4), (1, 6, 1), "i0 i1 i2"),
    ((1, 6), (1, 6), "i1"),
)


def _broadcast() -> list[Case]:
    cases = []
    for k, name in enumerate(BROADCAST):
        some = BROADCAST_SHAPES if name in ("add", "mul") else BROADCAST_SHAPES[k % 5 :][:2]
        for a, b, expect in some:
            cases.append(case(f"broadcast_{name}", positive(*a), positive(*b), expect=expect))
            if k >= 9:
                continue
            reads = "g0" if name in ("add", "sub") else "g0 i0 i1"
            backward = f"_backward_broadcast_{name}"
            cases.append(back(backward, reads, positive(*a), positive(*b), expect=expect))
    wide = {"shape": "(6, 4)"}
    axis = {"axis": "1", "size": "4"}
    axes = {"axis": "(0, 2)", "size": "(4, 2)"}
    cases += [
        case("broadcast_to", real(6, 1), attrs=wide, expect="i0 i1"),
        case("broadcast_to", real(6, 1), attrs={"shape": "(0, 4)"}, expect="i0 i1"),
        case("broadcast_axis", real(6, 1), attrs=axis, expect="i0 i1"),
        case("broadcast_axis", real(1, 6, 1), attrs=axes, expect="i0 i1 i2"),
        case("broadcast_like", real(6, 1), real(6, 4), expect="i0 i1"),
    ]
    for small, big, expect in (((6, 1), (6, 4), "i0 i1"), ((1, 6, 1), (4, 6, 2), "i0 i1 i2")):
        more = {"forward": "broadcast_to", "forward_attrs": {"shape": str(big)}, "expect": expect}
        attrs = {"keepdims": "true"}
        cases.append(back("_broadcast_backward", "g0", In(small), attrs=attrs, **more))
    return cases


CASES = _broadcast()
