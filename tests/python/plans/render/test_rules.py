"""A plan as rules: pins that cut every parameter as the plan does."""

import json
import random

import pytest

from tofu.config import read_pins
from tofu.plans import Plan
from tofu.plans.options import pinned
from tofu.plans.render.rules import render_rules

from ..documents import document

NAMES = [
    *(f"net_dense{n}_{kind}" for n in range(12) for kind in ("weight", "bias")),
    *(f"layers.{n}.attn.{kind}.weight" for n in range(4) for kind in ("q", "k")),
    "net_embedding_weight", "scale", "lone_table", "weight",
]  # fmt: skip


def planned(cuts_of, others=()):
    """A plan that updates the tensors of these names, and has others."""
    tensors = [
        {"node": name, "output": 0, "shape": [8, 8], "dtype": 0, "cuts": list(cuts)}
        for name, cuts in [*cuts_of.items(), *((name, (0, 0)) for name in others)]
    ]
    operators = [
        {"node": f"{name}_update", "op": "sgd_update", "cuts": ["x", "x"], "bytes": 0}
        for name in cuts_of
    ]
    return Plan.from_json(json.dumps(document(tensors=tensors, operators=operators)))


def rules_of(plan):
    return render_rules(plan).splitlines()


def test_most_tensors_of_a_kind_need_one_rule_and_the_rest_their_names():
    cuts = {f"net_dense{n}_weight": (0, 1) for n in range(12)} | {"net_dense3_weight": (1, 1)}
    cuts["net_embedding_weight"] = (0, 1)
    assert rules_of(planned(cuts)) == [
        "*_weight=0,1  # 12 tensors, 3.0 KiB", "net_dense3_weight=1,1",
    ]  # fmt: skip


def test_kinds_of_names_have_rules_of_their_own_where_that_takes_fewer():
    cuts = {f"layers.{n}.attn.q.weight": (0, 0) for n in range(4)}
    cuts |= {f"layers.{n}.attn.k.weight": (1, 1) for n in range(4)}
    assert {rule.partition(" ")[0] for rule in rules_of(planned(cuts))} == {
        "layers.*.attn.q.weight=0,0", "layers.*.attn.k.weight=1,1",
    }  # fmt: skip


def test_a_pattern_that_fits_other_tensors_is_no_rule():
    cuts = {"a1_weight": (0, 0), "a2_weight": (0, 0)}
    assert rules_of(planned(cuts, others=["saved_weight"]))[0].startswith("a*_weight=0,0")
    assert rules_of(planned(cuts, others=["a_lone_weight"])) == ["a1_weight=0,0", "a2_weight=0,0"]


@pytest.mark.parametrize("seed", range(20))
def test_pins_read_from_rules_cut_as_the_plan_does(tmp_path, seed):
    rng = random.Random(seed)
    kinds = [(0, 0), (0, 1), (-1, 1), (-1, -1)]
    weights = [8, *(rng.choice((0, 1, 4)) for _ in kinds[1:])]
    cuts = {name: rng.choices(kinds, weights)[0] for name in NAMES}
    path = tmp_path / "rules.pins"
    path.write_text(render_rules(planned(cuts)))
    assert pinned(read_pins(path, "--pins"), dict.fromkeys(NAMES)) == (cuts, []), f"seed {seed}"
