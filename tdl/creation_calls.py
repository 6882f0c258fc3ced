"""Example calls of operators that make tensors."""

from __future__ import annotations

from tofu.lang.example_calls import Case, case, real

__all__ = ["CASES"]


def _creation() -> list[Case]:
    shape = {"shape": "(6, 4)"}
    cases = [case(n, attrs=shape, expect="i0 i1") for n in ("_zeros", "_ones")]
    cases += [
        case("_zeros_without_dtype", attrs={**shape, "dtype": "0"}, expect="i0 i1"),
        case("_full", attrs={**shape, "value": "3"}, expect="i0 i1"),
        case("_arange", attrs={"start": "0", "stop": "6"}, expect=""),
        case("_eye", attrs={"N": "6", "M": "4"}, expect=""),
        case("_contrib_arange_like", real(6, 4), attrs={"axis": "0"}, expect=""),
    ]
    random = {
        "uniform": {},
        "normal": {},
        "exponential": {},
        "gamma": {},
        "poisson": {},
        "negative_binomial": {"k": "3", "p": "0.5"},
        "generalized_negative_binomial": {"mu": "2", "alpha": "0.3"},
    }
    for name, attrs in random.items():
        more = {"skip": (0,), "expect": "i0 i1"}
        cases.append(case(f"_random_{name}", attrs={**attrs, **shape}, **more))
        cases.append(case(f"_random_{name}_like", real(6, 4), attrs=attrs, **more))
    integers = {**shape, "low": "0", "high": "9"}
    cases.append(case("_random_randint", attrs=integers, skip=(0,), expect="i0 i1"))
    return cases


CASES = _creation()
