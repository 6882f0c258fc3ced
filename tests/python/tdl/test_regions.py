"""The regions of every described operator, checked at concrete points.

Checks the strategies of the descriptions' example calls on their own sizes, on random sizes
(1, 2, 5, 10 and others), and with arbitrary ranges of the variables. The oracle evaluates the
descriptions' indices at points and does not use intervals. A run takes a sample of the calls;
`pytest --full` takes all of them.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import pytest

pytest.importorskip("mxnet")

import tofu.tdl  # noqa: F401 registers the descriptions
from tofu.analysis import row_for
from tofu.analysis.apply_row import Part, extent_of, parts_of
from tofu.analysis.part_check import anchored
from tofu.analysis.result import Analysis, InputRegion
from tofu.analysis.strategies import analyze_trace
from tofu.boxes import Box
from tofu.errors import TofuError
from tofu.lang import ir, lookup
from tofu.lang.example_calls import Case
from tofu.verify.calls.operator_calls import shipped_cases
from tofu.verify.check.draw import drawn
from tofu.verify.inventory.inventory import Call, call_of

SEED = 20190329
CHUNKS = 16
SAMPLE = 12  # calls taken from a chunk of about a hundred
SIZES = (1, 2, 5, 10)
MANY_POINTS = 300
Ranges = Mapping[str, tuple[int, int]]  # inclusive


class Subject(NamedTuple):
    """A call, its row, its executed description, and the regions that it claims to read."""

    call: Call
    row: Mapping[str, Any]
    analysis: Analysis
    regions: tuple[Optional[InputRegion], ...]


# --- The oracle ---------------------------------------------------------------------------


def evaluate(index: ir.Index, point: Mapping[str, int]) -> int:
    total = index.const
    for atom, coef in index.terms:
        if isinstance(atom, str):
            total += coef * point[atom]
        else:
            total += coef * (evaluate(atom.index, point) // atom.divisor)
    return total


def points(names: Sequence[str], ranges: Ranges, rng: random.Random) -> Iterator[dict[str, int]]:
    """All points, or the corners and some others if there are many."""
    spans = [range(ranges[n][0], ranges[n][1] + 1) for n in names]
    if math.prod(map(len, spans)) <= MANY_POINTS:
        values: Any = itertools.product(*spans)
    else:
        corners = itertools.product(*({span[0], span[-1]} for span in spans))
        inner = (tuple(rng.choice(span) for span in spans) for _ in range(MANY_POINTS))
        values = itertools.chain(corners, inner)
    return (dict(zip(names, each)) for each in values)


def touched(index: ir.Index, ranges: Ranges, rng: random.Random) -> set[int]:
    return {evaluate(index, p) for p in points(sorted(index.variables), ranges, rng)}


def accesses(analysis: Analysis) -> Iterator[tuple[ir.Element, int, ir.Index]]:
    """Every index of every element that is read; whole dimensions have none."""
    for output in analysis.trace.outputs:
        for element in ir.elements(output.body):
            for d, dim in enumerate(element.dims):
                if isinstance(dim, ir.Index):
                    yield element, d, dim


# --- Calls --------------------------------------------------------------------------------


def chunk(number: int, full: bool) -> list[Case]:
    mine = list(shipped_cases())[number::CHUNKS]
    if not full:
        mine = random.Random(SEED + number).sample(mine, min(SAMPLE, len(mine)))
    print(f"seed {SEED}, calls {number} of {CHUNKS}: {len(mine)}")
    return mine


def subject(case: Case) -> Optional[Subject]:
    call = call_of(case)
    description = lookup(case.op)
    if call is None or description is None:
        return None
    try:
        row = row_for(call.op, call.attrs, call.ins, call.outs)
        if row is None:
            return None
        analysis = analyze_trace(description.trace(call.ins, call.outs, call.attrs))
    except TofuError:
        return None
    return Subject(call, row, analysis, tuple(anchored(r) for r in analysis.inputs))


def resized(case: Case, number: int) -> Optional[Case]:
    return drawn(case, np.random.default_rng(SEED + number), (*SIZES, 3, 4, 7, 12))


def cuts(extent: int, rng: random.Random) -> Iterator[tuple[int, ...]]:
    """Sizes of parts: halves, thirds if they divide, and two of random sizes."""
    yield from ((extent // p,) * p for p in (2, 3) if extent % p == 0)
    first = rng.randint(1, extent - 1)
    yield first, extent - first


# --- Checks -------------------------------------------------------------------------------


def check_strategies(about: Subject, rng: random.Random) -> int:
    """Check every part of every strategy; return their number."""
    call, row = about.call, about.row
    count = 0
    for var in row["splittable"]:
        extent = extent_of(row["vars"][var]["extent"], call.ins, call.outs)
        for sizes in cuts(extent, rng):
            parts = parts_of(row, call.attrs, call.ins, call.outs, [(var, sizes)])
            begin = 0
            for part, size in zip(parts, sizes):
                ranges = whole_ranges(about)
                ranges[row["vars"][var]["name"]] = (begin, begin + size - 1)
                begin += size
                shown = f"{call.op} {dict(call.attrs)} {call.ins}: {row['vars'][var]} in {sizes}"
                check_reads(about, part, ranges, var, shown, rng)
                check_writes(about, part, ranges, var, shown, rng)
                count += 1
            check_cover(about, parts, var)
    return count


def whole_ranges(about: Subject) -> dict[str, tuple[int, int]]:
    call = about.call
    return {
        v["name"]: (0, extent_of(v["extent"], call.ins, call.outs) - 1) for v in about.row["vars"]
    }


def check_reads(
    about: Subject, part: Part, ranges: Ranges, var: int, shown: str, rng: random.Random
) -> None:
    """Check that all reads are in the part's region, and that exact ends are read."""
    found: dict[tuple[int, int], set[int]] = {}
    for element, d, index in accesses(about.analysis):
        slot, size = element.slot, about.call.ins[element.slot][d]
        low, high = part.inputs[slot][d]
        read = touched(index, ranges, rng)
        found.setdefault((slot, d), set()).update(read)
        if part.fills[slot] is None:
            outside = {i for i in read if not 0 <= i < size}
            assert element.fill is not None or not outside, (shown, ir.show(element), outside)
            read -= outside
        assert all(low <= i < high for i in read), (shown, ir.show(element), d, (low, high))
    split = about.row["vars"][var]["name"]
    for (slot, d), read in found.items():
        region = about.regions[slot]
        claim = None if region is None else region.dims[d]
        if not read or claim is None or not claim.exact or split not in claim.variables:
            continue
        ends = min(read), max(read) + 1
        if part.fills[slot] is None:
            ends = max(ends[0], 0), min(ends[1], about.call.ins[slot][d])
        assert part.inputs[slot][d] == ends, (shown, about.regions[slot], d)


def check_writes(
    about: Subject, part: Part, ranges: Ranges, var: int, shown: str, rng: random.Random
) -> None:
    """Check that a part's outputs are in its box and fill it."""
    for output, box in zip(about.analysis.trace.outputs, part.outputs):
        for (low, high), index in zip(box, output.index):
            made = touched(index, ranges, rng)  # nothing, of a dimension of size 0
            ends = (min(made), max(made) + 1) if made else (low, low)
            assert ends == (low, high), (shown, ir.show_index(index), box)
        made_of = math.prod(ranges[n][1] - ranges[n][0] + 1 for n in output.variables)
        assert made_of == volume(box), (shown, output.variables, box)
        if made_of <= MANY_POINTS:
            every = points(output.variables, ranges, rng)
            places = {tuple(evaluate(i, p) for i in output.index) for p in every}
            assert len(places) == made_of, (shown, "made twice")


def check_cover(about: Subject, parts: Sequence[Part], var: int) -> None:
    """Check that concatenated parts are disjoint and complete, and other parts whole."""
    name = about.row["vars"][var]["name"]
    for k, output in enumerate(about.analysis.trace.outputs):
        whole = math.prod(about.call.outs[k])
        volumes = [volume(part.outputs[k]) for part in parts]
        if name in output.variables:
            assert sum(volumes) == whole
            boxes = [part.outputs[k] for part in parts]
            assert not any(meet(a, b) for a, b in itertools.combinations(boxes, 2))
        else:
            assert volumes == [whole] * len(parts)


def volume(box: Box) -> int:
    return math.prod(end - begin for begin, end in box)


def meet(a: Box, b: Box) -> bool:
    return all(max(x[0], y[0]) < min(x[1], y[1]) for x, y in zip(a, b))


def check_free_ranges(about: Subject, rng: random.Random) -> int:
    """Check that regions hold for arbitrary ranges."""
    extents = {v["name"]: rng.choice((*SIZES, rng.randint(1, 20))) for v in about.row["vars"]}
    ranges = {}
    for name, extent in extents.items():
        low = rng.randrange(extent)
        ranges[name] = (low, rng.randrange(low, extent))
    found: dict[tuple[int, int], set[int]] = {}
    for element, d, index in accesses(about.analysis):
        found.setdefault((element.slot, d), set()).update(touched(index, ranges, rng))
    for (slot, d), read in found.items():
        region = about.regions[slot]
        claim = None if region is None else region.dims[d]
        if claim is None:
            continue
        low, high = claim.lo.evaluate(ranges), claim.hi.evaluate(ranges)
        shown = about.call, region, d, ranges
        assert low <= min(read) and max(read) <= high, shown
        assert not claim.exact or (low, high) == (min(read), max(read)), shown
    return len(found)


# --- Tests --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(CHUNKS))
def test_parts_read_their_regions_and_make_the_whole(number: int, full: bool) -> None:
    rng = random.Random(SEED + number)
    checked = 0
    for case in chunk(number, full):
        for each in (case, resized(case, number)):
            about = None if each is None else subject(each)
            if about is not None:
                checked += check_strategies(about, rng)
    assert checked > 3 * SAMPLE


@pytest.mark.parametrize("number", range(CHUNKS))
def test_regions_hold_for_ranges_of_any_size(number: int, full: bool) -> None:
    rng = random.Random(SEED - number)
    found = [about for case in chunk(number, full) for about in [subject(case)] if about]
    assert sum(check_free_ranges(about, rng) for about in found for _ in range(5)) > 5 * SAMPLE


def test_the_oracle_finds_a_region_that_is_too_small() -> None:
    """Tests a convolution's row without its halo, and one that claims a row too many."""
    attrs = {"kernel": "(3,)", "num_filter": "4", "no_bias": "True"}
    call = Call("Convolution", attrs, ((2, 3, 10), (4, 3, 3)), ((2, 4, 8),))
    description = lookup("Convolution")
    analysis = analyze_trace(description.trace(call.ins, call.outs, attrs))
    row = row_for(call.op, attrs, call.ins, call.outs)
    about = Subject(call, row, analysis, tuple(anchored(r) for r in analysis.inputs))
    assert check_strategies(about, random.Random(SEED)) > 0
    data = row["inputs"][0]["dims"][2]
    for change in (-1, 1):
        wrong = {**data, "hi": {**data["hi"], "const": change}}
        first = {**row["inputs"][0], "dims": [*row["inputs"][0]["dims"][:2], wrong]}
        mutated = {**row, "inputs": [first, *row["inputs"][1:]]}
        with pytest.raises(AssertionError, match="Convolution"):
            check_strategies(about._replace(row=mutated), random.Random(SEED))
