"""Example calls of sequences of unequal length."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, case, real

__all__ = ["CASES"]


def _sequences() -> list[Case]:
    used, cases = {"use_sequence_length": "True"}, []
    for op in ("SequenceMask", "SequenceReverse", "SequenceLast"):
        for axis in ("0", "1") if op != "SequenceReverse" else ("0",):
            data = real(4, 6, 2) if axis == "0" else real(6, 4, 2)
            lengths = In((6,), "count", 4)  # at most the words
            expect = "b c" if axis == "0" else "a c"
            attrs = {"axis": axis}
            all_free = "a b c" if op == "SequenceMask" else expect
            plain = {"attrs": attrs, "expect": all_free}
            cases.append(case(op, data, **plain))
            cases.append(back(f"_backward_{op}", "g0", data, **plain))
            options = {"attrs": {**attrs, **used}, "expect": expect}
            cases.append(case(op, data, lengths, **options))
            cases.append(back(f"_backward_{op}", "g0 i1", data, lengths, skip=(1,), **options))
    return cases


CASES = _sequences()
