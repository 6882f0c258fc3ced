"""Intervals, checked at concrete points."""

from __future__ import annotations

import itertools
import random

import pytest

from tofu.errors import InconclusiveError
from tofu.lang import ir
from tofu.lang.interval import LOWER, UPPER, Form, Interval, hull, interval_of

SEED = 4221
SIZES = (1, 2, 5, 10)
NAMES = ("x", "y", "z")


def _evaluate(index: ir.Index, point: dict[str, int]) -> int:
    total = index.const
    for atom, coef in index.terms:
        if isinstance(atom, str):
            total += coef * point[atom]
        else:
            total += coef * (_evaluate(atom.index, point) // atom.divisor)
    return total


def _random_index(rng: random.Random, depth: int = 2) -> ir.Index:
    index = ir.constant(rng.randint(-4, 4))
    for _ in range(rng.randint(1, 3)):
        term = ir.variable(rng.choice(NAMES))
        if depth and rng.random() < 0.4:
            term = ir.floordiv(_random_index(rng, depth - 1), rng.randint(2, 4))
        index = ir.add(index, ir.scale(term, rng.choice((-3, -2, -1, 1, 2, 3))))
    return index


def _random_ranges(rng: random.Random) -> dict[str, tuple[int, int]]:
    ranges = {}
    for name in NAMES:
        low = rng.choice((0, 0, 1, 3, 7))
        ranges[name] = (low, low + rng.choice(SIZES) - 1)
    return ranges


def _points(ranges: dict[str, tuple[int, int]], used: frozenset[str]):
    names = sorted(used)
    for values in itertools.product(*(range(ranges[n][0], ranges[n][1] + 1) for n in names)):
        yield dict(zip(names, values))


@pytest.mark.parametrize("number", range(150))
def test_every_point_lies_inside_and_exact_ends_are_reached(number: int) -> None:
    rng = random.Random(SEED + number)
    index = _random_index(rng)
    ranges = _random_ranges(rng)
    interval = interval_of(index)
    values = [_evaluate(index, p) for p in _points(ranges, index.variables)]
    low, high = interval.lo.evaluate(ranges), interval.hi.evaluate(ranges)
    shown = f"seed {SEED + number}: {ir.show_index(index)} over {ranges}: {interval}"
    assert low <= min(values) and max(values) <= high, shown
    if interval.exact:
        assert (low, high) == (min(values), max(values)), shown


def _sum_of_floors(rng: random.Random) -> ir.Index:
    index = ir.constant(rng.randint(-3, 3))
    for name in NAMES[: rng.choice((2, 2, 3))]:
        term = ir.add(ir.scale(ir.variable(name), rng.choice((-1, 1, 3))), ir.constant(1))
        index = ir.add(index, ir.floordiv(term, rng.choice((1, 2, 4, 5))))
    return index


def test_sums_of_floors_hold_every_point_and_little_more() -> None:
    """Each floor after the first loses up to one, which few random indices show."""
    for seed in range(3000):
        rng = random.Random(seed)
        index = _sum_of_floors(rng)
        starts = {name: rng.randint(0, 3) for name in NAMES}
        ranges = {name: (low, low + rng.randint(0, 4)) for name, low in starts.items()}
        interval = interval_of(index)
        values = [_evaluate(index, p) for p in _points(ranges, index.variables)]
        low, high = interval.lo.evaluate(ranges), interval.hi.evaluate(ranges)
        shown = f"seed {seed}: {ir.show_index(index)} over {ranges}: {interval}"
        assert low <= min(values) and max(values) <= high, shown
        terms = [{a} if isinstance(a, str) else set(a.index.variables) for a, _ in index.terms]
        if sum(map(len, terms)) == len(index.variables):  # else the terms are not independent
            slack = len(terms) - 1
            assert min(values) - slack <= low and high <= max(values) + slack, shown


@pytest.mark.parametrize("number", range(60))
def test_arithmetic_keeps_values(number: int) -> None:
    rng = random.Random(SEED - number)
    a, b = _random_index(rng), _random_index(rng)
    divisor, shift = rng.randint(1, 5), rng.randint(-3, 3)
    point = {name: rng.randint(0, 9) for name in NAMES}
    at = {name: ir.add(ir.variable(name), ir.constant(shift)) for name in NAMES}
    moved = {name: value + shift for name, value in point.items()}
    left, right = _evaluate(a, point), _evaluate(b, point)
    assert _evaluate(ir.add(a, b), point) == left + right
    assert _evaluate(ir.scale(a, divisor), point) == left * divisor
    assert _evaluate(ir.floordiv(a, divisor), point) == left // divisor
    assert _evaluate(ir.substitute(a, at), point) == _evaluate(a, moved)


def test_figure_4() -> None:
    """The paper's rules: shifting, scaling, dividing and adding intervals."""
    x, dx = ir.variable("x"), ir.variable("dx")
    shifted = interval_of(ir.add(x, ir.constant(2)))
    assert str(shifted) == "x.lo+2..x.hi+2" and shifted.exact
    assert str(interval_of(ir.scale(x, 3))) == "3*x.lo..3*x.hi"
    assert str(interval_of(ir.scale(x, -1))) == "-x.hi..-x.lo"
    assert str(interval_of(ir.floordiv(x, 2))) == "(x.lo)//2..(x.hi)//2"
    assert str(interval_of(ir.add(x, dx))) == "dx.lo+x.lo..dx.hi+x.hi"


def test_shift_two_of_section_4_2() -> None:
    interval = interval_of(ir.add(ir.variable("i"), ir.constant(2)))
    ends = [
        (i.evaluate({"i": (0, 4)}), i.evaluate({"i": (5, 9)})) for i in (interval.lo, interval.hi)
    ]
    assert ends == [(2, 7), (6, 11)]


def test_a_variable_twice_is_an_over_approximation() -> None:
    x = ir.variable("x")
    mixed = interval_of(ir.add(x, ir.scale(ir.floordiv(x, 2), -2)))
    assert not mixed.exact


def test_hull() -> None:
    x = interval_of(ir.variable("x"))
    shifted = interval_of(ir.add(ir.variable("x"), ir.constant(3)))
    both = hull(x, shifted)
    assert str(both) == "x.lo..x.hi+3" and not both.exact
    assert hull(x, x) is x
    with pytest.raises(InconclusiveError, match="the outer one depends on the part"):
        hull(x, interval_of(ir.variable("y")))


def test_a_huge_divisor_is_inconclusive() -> None:
    index = ir.variable("x")
    for _ in range(4):
        index = ir.add(ir.Index(((ir.FloorDiv(index, 1000), 1),), 0), ir.variable("y"))
    with pytest.raises(InconclusiveError, match="divisor"):
        interval_of(index)


def test_form_evaluates_bounds() -> None:
    form = Form((("x", LOWER, 2), ("y", UPPER, -1)), 3, 2)
    assert form.evaluate({"x": (4, 9), "y": (0, 2)}) == (8 - 2 + 3) // 2
    assert Interval(form, form, True).variables == {"x", "y"}
