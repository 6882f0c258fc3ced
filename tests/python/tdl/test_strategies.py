"""Every strategy of every described operator, on the real operator.

Runs each operator whole, and then in parts exactly as its row of the strategy table says:
each variable alone in 2 and 3 parts, neighbouring variables together, in unequal pieces (one of
each case, or all with ``--full``), and unsplit on the row's own regions. Concatenated or reduced,
the parts must equal the whole. Where terms of inputs pass through, results of two terms must, too.
"""

from __future__ import annotations

import zlib

import pytest

pytest.importorskip("mxnet")

import tofu.tdl  # noqa: F401 registers the descriptions
from tofu.analysis import row_for
from tofu.analysis.apply_row import Split
from tofu.lang import registered
from tofu.lang.example_calls import Case
from tofu.verify.calls.operator_calls import NOT_RUN, shipped_cases
from tofu.verify.check.operator import unequal_pieces
from tofu.verify.run.by_parts import Run

SEED = 20190325


def _splits(run: Run, full: bool) -> list[list[Split]]:
    splittable = run.row["splittable"]
    unequal = [[(v, sizes)] for v in splittable for sizes in unequal_pieces(run.extent(v))]
    if unequal and not full:
        unequal = [unequal[zlib.crc32(run.case.name.encode()) % len(unequal)]]
    alone = [[(v, p)] for v in splittable for p in (2, 3) if run.extent(v) % p == 0]
    even = [v for v in splittable if run.extent(v) % 2 == 0]
    together = [[(a, 2), (b, 2)] for a, b in zip(even, even[1:])]
    return [[], *alone, *together, *unequal]


@pytest.mark.parametrize("case", shipped_cases(), ids=lambda case: case.name)
def test_parts_make_the_whole(case: Case, full: bool) -> None:
    run = Run(case, SEED)
    if case.expect is not None:
        found = run.names(run.row["splittable"])
        assert sorted(found) == sorted(case.expect.split()), str(run.row)
    for splits in _splits(run, full):
        run.check(splits)
    for slots in run.linear_inputs():
        run.check_terms(slots)


def test_every_description_has_a_case() -> None:
    shipped = {n for n, d in registered().items() if d.location.startswith("tdl/")}
    assert shipped - {case.op for case in shipped_cases()} == set(NOT_RUN)
    assert len(shipped) > 300


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("relu", [(6, 4), (6, 4)]),
        ("sgd_mom_update", [(6, 4)] * 4),
        ("_backward_mul", [(6, 4)] * 5),
        ("_copy", [(6,), (6,)]),
    ],
)
def test_elementwise_operators_are_recognised(op: str, shapes: list) -> None:
    outputs = 2 if op == "_backward_mul" else 1
    row = row_for(op, {}, shapes[:-outputs], shapes[-outputs:])
    assert row is not None and row["elementwise"]


@pytest.mark.parametrize(
    ("op", "ins", "outs"),
    [
        ("transpose", [(6, 6)], [(6, 6)]),
        ("broadcast_add", [(6, 4), (1, 4)], [(6, 4)]),
        ("_contrib_div_sqrt_dim", [(6, 4)], [(6, 4)]),
        ("softmax", [(6, 4)], [(6, 4)]),
    ],
)
def test_other_operators_are_not_elementwise(op: str, ins: list, outs: list) -> None:
    row = row_for(op, {}, ins, outs)
    assert row is not None and not row["elementwise"]
