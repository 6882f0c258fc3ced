"""Plans as text: every tensor of a small graph, repeated structure of a large one."""

import dataclasses
import json
import re

import pytest

from tofu.plans import Plan
from tofu.plans.plan import IfWhole, format_bytes
from tofu.plans.render.grouping import repeated_operators, repeated_tensors
from tofu.plans.render.text import render_text, sentence, summary

from ..documents import document, stack


def test_text_names_every_tensor_and_operator():
    text = render_text(Plan.from_json(json.dumps(document())))
    assert "4 workers (2 x 2), 1.5 KiB communicated per training step" in text
    assert re.search(r"^w +8x6 +float32 +2x2 +0 1$", text, re.M)
    assert re.search(r"^b +3 +float64 +1= +- -$", text, re.M)
    assert re.search(r"^fc +FullyConnected +b - +96$", text, re.M)


def test_text_says_what_unequal_tiles_hold():
    tensors = [
        {"node": "w", "output": 0, "shape": [1024, 3], "dtype": 0, "cuts": [0, 0]},
        {"node": "v", "output": 0, "shape": [7, 5], "dtype": 0, "cuts": [1, 0]},
        {"node": "u", "output": 0, "shape": [1024], "dtype": 0, "cuts": [-1, 0]},
    ]
    steps = [{"parts": 3, "groups": 1, "bytes": 0}, {"parts": 2, "groups": 3, "bytes": 1536}]
    changes = {"workers": 6, "parts": [3, 2], "steps": steps, "tensors": tensors}
    text = render_text(Plan.from_json(json.dumps(document(**changes))))
    assert re.search(r"^w +1024x3 +float32 +6x1 \(171 or 170 of 1,024\) +0 0$", text, re.M)
    assert re.search(r"^v +7x5 +float32 +2x3 \(4 or 3 of 7; 2 or 1 of 5\) +1 0$", text, re.M)
    assert re.search(r"^u +1024 +float32 +2= +- 0$", text, re.M)


def test_only_a_bound_that_is_met_proves_the_plan():
    changes = {"status": "steps-optimal", "lower_bound_bytes": 1024, "gap": 1 / 3}
    text = render_text(Plan.from_json(json.dumps(document(**changes))))
    assert "every step optimal by itself; at most 50.0% above the optimum" in text
    changes["status"] = "feasible"
    assert "every step optimal" not in render_text(Plan.from_json(json.dumps(document(**changes))))
    assert "proven optimal" in render_text(Plan.from_json(json.dumps(document())))


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        (1535, "at most 0.1% above the optimum"),
        (1509, "at most 1.8% above the optimum"),
        (1, "at most 153500.0% above the optimum"),
        (0, "nothing proven of the whole plan"),
    ],
)
def test_the_gap_is_rounded_up_and_said_in_words(bound, words):
    changes = {"status": "feasible", "lower_bound_bytes": bound}
    plan = Plan.from_json(json.dumps(document(**changes)))
    assert plan.quality() == words
    rival = Plan.from_json(json.dumps(document(mode="icml18", **changes)))
    assert rival.quality() == f"{words} of icml18"


def test_what_is_alike_is_counted_once():
    text = render_text(stack())
    assert re.search(r"^layer\*_weight +x 39 +8x6 +float32 +2x2 +0 1 +7.3 KiB$", text, re.M)
    assert re.search(r"^layer0_weight +8x6 +float32 +2x2 +1 0 +192 bytes$", text, re.M)
    assert re.search(r"^layer\*_fc +x 40 +FullyConnected +b - +3.8 KiB$", text, re.M)
    assert "layer7_weight" not in text
    assert len(text.splitlines()) < 25


def test_all_shows_every_one():
    text = render_text(stack(), everything=True)
    assert all(f"\nlayer{i}_weight " in text and f"\nlayer{i}_fc " in text for i in range(40))


def test_what_is_left_out_is_counted():
    # Names without a common pattern cannot be grouped.
    names = [chr(97 + i % 26) * (1 + i // 26) for i in range(80)]
    tensors = [
        {"node": name, "output": 0, "shape": [4], "dtype": 0, "cuts": [0, 0]} for name in names
    ]
    text = render_text(Plan.from_json(json.dumps(document(tensors=tensors))))
    assert "... and 60 more tensors, 960 bytes together; --all shows all" in text


def test_summary_tells_model_and_memory():
    lines = render_text(stack()).splitlines()
    assert lines[1] == "stack: 99 nodes, 40 operators, 80 tensors"
    assert lines[2] == (
        "a worker holds 1.5 KiB (an estimate): parameters 1.0 KiB, fetch buffers 512 bytes"
    )


def test_groups_hold_every_tensor_and_operator_once():
    plan = stack()
    for groups, items in (
        (repeated_tensors(plan), plan.tensors),
        (repeated_operators(plan), plan.operators),
    ):
        members = [member for group in groups for member in group.members]
        assert len(members) == len(items) and set(members) == set(items)
        assert [g.bytes for g in groups] == sorted((g.bytes for g in groups), reverse=True)


def test_a_number_that_all_share_stays_in_the_name():
    (group,) = repeated_tensors(
        Plan.from_json(
            json.dumps(
                document(
                    tensors=[
                        {"node": f"s2_{i}_w", "output": 0, "shape": [4], "dtype": 0, "cuts": [0, 0]}
                        for i in (3, 14)
                    ]
                )
            )
        )
    )
    assert (group.name, len(group)) == ("s2_*_w", 2)


def test_operators_that_cost_differently_are_not_alike():
    """Neither are operators of another kind or split; numbers in names do not count."""
    operators = [
        {"node": f"layer{i}_fc", "op": op, "cuts": cuts, "bytes": size}
        for i, (op, cuts, size) in enumerate(
            [
                ("FullyConnected", ["b", None], 96),
                ("FullyConnected", ["b", None], 96),
                ("FullyConnected", ["b", None], 100),
                ("FullyConnected", ["o", None], 96),
                ("relu", ["b", None], 96),
            ]
        )
    ]
    plan = Plan.from_json(json.dumps(document(operators=operators)))
    found = [(group.name, len(group), group.bytes) for group in repeated_operators(plan)]
    assert found == [
        ("layer*_fc", 2, 192),
        ("layer2_fc", 1, 100),
        ("layer3_fc", 1, 96),
        ("layer4_fc", 1, 96),
    ]


def test_tensors_of_another_type_are_not_alike():
    tensors = [
        {"node": f"layer{i}_w", "output": 0, "shape": shape, "dtype": dtype, "cuts": cuts}
        for i, (shape, dtype, cuts) in enumerate(
            [
                ([8], 0, [0, 0]),
                ([8], 0, [0, 0]),
                ([8], 4, [0, 0]),
                ([8], 0, [0, -1]),
                ([4], 0, [0, 0]),
            ]
        )
    ]
    plan = Plan.from_json(json.dumps(document(tensors=tensors)))
    found = [(group.name, len(group)) for group in repeated_tensors(plan)]
    assert found == [("layer*_w", 2), ("layer2_w", 1), ("layer3_w", 1), ("layer4_w", 1)]


def test_a_line_each_up_to_64_tensors():
    def lines(count):
        tensors = [
            {"node": f"w{i}", "output": 0, "shape": [4], "dtype": 0, "cuts": [0, 0]}
            for i in range(count)
        ]
        return render_text(Plan.from_json(json.dumps(document(tensors=tensors))))

    assert "\nw63 " in lines(64)
    assert "\nw64 " not in lines(65) and "x 65" in lines(65)


def test_what_is_shared_follows_the_bytes_that_it_is_a_part_of():
    plan = Plan.from_json(json.dumps(document(fetched_bytes=1024, model="net", nodes=3)))
    lines = render_text(plan).splitlines()
    assert lines[1] == "512 bytes of that is not communicated: equal fetches are shared"
    assert lines[2].startswith("net: ")


def test_a_plan_that_leaves_most_bytes_whole_says_so():
    def tensors(whole):
        # Two steps cut w, and one step cuts x, so that x is not whole.
        shapes = {"w": [20, 2], "v": [9, whole], "x": [10]}
        cuts = {"w": [0, 0], "v": [-1, -1], "x": [0, -1]}
        return [
            {
                "node": n,
                "output": 0,
                "shape": s,
                "dtype": 0,
                "cuts": cuts[n],
            }
            for n, s in shapes.items()
        ]

    steps = {"parts": [10, 2], "workers": 20}
    many = json.dumps(document(tensors=tensors(7), **steps))
    lines = render_text(Plan.from_json(many)).splitlines()
    assert lines[1] == (
        "252 bytes of the 452 bytes of all tensors stay whole on every worker, as no dimension "
        "has 10 x 2 elements: v (252 bytes)"
    )
    assert lines[2] == "choose fewer workers, or a larger batch or layers"
    few = render_text(Plan.from_json(json.dumps(document(tensors=tensors(3), **steps))))
    assert "whole on every worker" not in few


def test_the_price_of_cutting_every_tensor_is_told():
    plan = Plan.from_json(json.dumps(document()))
    for held, words in (
        (1.22, "about 22% more"),
        (0.9, "about 10% less"),
        (1.001, "about as much"),
    ):
        priced = dataclasses.replace(plan, if_whole=IfWhole(1024, 0.25, held))
        line = (
            "ith --allow-replication 25% less is communicated, 1.0 KiB, and a worker holds " + words
        )
        assert "w" + line in summary(priced)
        assert sentence(priced).endswith(f" W{line}.")
    assert not any("--allow-replication" in line for line in summary(plan))


def test_the_first_sentence_proves_nothing_beyond_a_limit():
    plan = Plan.from_json(json.dumps(document(status="optimal", replication=True)))
    told = sentence(plan, has_limit=True)
    assert told.endswith(" No other plan within this limit costs less; that is proven.")


@pytest.mark.parametrize(
    ("changes", "proof"),
    [
        (
            {"status": "optimal", "replication": True},
            "No other plan costs less; that is proven.",
        ),
        (
            {"status": "optimal"},
            "No other plan that cuts every tensor costs less; that is proven. One that keeps some "
            "whole may cost less: --allow-replication.",
        ),
        (
            {"status": "feasible", "lower_bound_bytes": 1152, "replication": True},
            "No other plan can cost less than 75% of this one.",
        ),
        (
            {"status": "feasible", "lower_bound_bytes": 0, "mode": "spartan"},
            "Whether another plan of spartan costs less is not known.",
        ),
    ],
)
def test_the_first_sentence_is_for_people(changes, proof):
    plan = Plan.from_json(json.dumps(document(**changes)))
    held = format_bytes(sum(plan.bytes_per_worker.values()))
    holds = f"Each worker holds at most {held}" if plan.bytes_per_worker else "Memory is unknown"
    assert sentence(plan) == (
        f"{holds}; in a training step the 4 workers fetch 1.5 KiB from each other. {proof}"
    )
