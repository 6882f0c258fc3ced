"""Damaged documents raise one of tofu's errors, whatever the damage, and never crash."""

import copy
import json
import random

import pytest

from tofu import _core
from tofu.errors import InternalError, TofuError

from . import documents

ROUNDS = 400
SEED = 20190325

GRAPH, TABLE = documents.graph(), documents.table()


def _table(graph, table):
    return _core.StrategyTable(table, _core.Graph(graph))


PLAN = json.loads(_core.plan(_table(json.dumps(GRAPH), json.dumps(TABLE)), workers=4).to_json())

VALUES = (
    None,
    True,
    -1,
    0,
    1,
    3,
    7,
    99,
    2**31,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    1.5,
    "",
    "x",
    [],
    {},
)


def _places(value, path=()):
    """Paths to all values inside a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, (dict, list)):
            yield from _places(inner, (*path, key))


def _damage(document, rng):
    """A copy with one value replaced, removed or doubled."""
    damaged = copy.deepcopy(document)
    *path, key = rng.choice(list(_places(document)))
    holder = damaged
    for step in path:
        holder = holder[step]
    action = rng.randrange(4)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    else:
        holder[key] = copy.deepcopy(rng.choice(VALUES))
    return damaged


def _run(graph, table, plan):
    _core.schedule(_core.partition(_core.Plan(plan, _table(graph, table))), joint=True)


def _plan(graph, table):
    _core.plan(_table(graph, table), workers=4, time_limit_s=1)


GRAPH_TEXT, TABLE_TEXT, PLAN_TEXT = (json.dumps(each) for each in (GRAPH, TABLE, PLAN))
CASES = {
    "graph": (GRAPH, lambda text: _plan(text, TABLE_TEXT)),
    "table": (TABLE, lambda text: _plan(GRAPH_TEXT, text)),
    "table of a plan": (TABLE, lambda text: _run(GRAPH_TEXT, text, PLAN_TEXT)),
    "plan": (PLAN, lambda text: _run(GRAPH_TEXT, TABLE_TEXT, text)),
}


@pytest.mark.parametrize("case", CASES)
def test_damaged_values_raise_errors_of_tofu(case):
    document, run = CASES[case]
    rng = random.Random(SEED)
    refused = 0
    for round_number in range(ROUNDS):
        damaged = _damage(document, rng)
        try:
            run(json.dumps(damaged))
        except InternalError as error:
            pytest.fail(f"seed {SEED}, round {round_number}: {error}\n{json.dumps(damaged)}")
        except TofuError:
            refused += 1
    assert refused > ROUNDS // 4


@pytest.mark.parametrize("case", CASES)
def test_truncated_texts_raise_errors_of_tofu(case):
    document, run = CASES[case]
    text = json.dumps(document)
    rng = random.Random(SEED)
    for _ in range(100):
        cut = text[: rng.randrange(len(text))]
        with pytest.raises(TofuError):
            run(cut)


@pytest.mark.parametrize("case", CASES)
def test_deep_nesting_does_not_exhaust_the_stack(case):
    for text in (
        "[" * 500_000,
        '{"graph":' * 200_000,
        '{"nodes":' + "[" * 10**5 + "]" * 10**5 + "}",
    ):
        with pytest.raises(TofuError):
            CASES[case][1](text)
