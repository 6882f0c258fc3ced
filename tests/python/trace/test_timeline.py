"""The uses of a worker's time have no gaps and no overlaps, and equal counts by hand."""

from __future__ import annotations

import json
import random

import pytest

from tofu.trace.labels import Node
from tofu.trace.profile import read_profile
from tofu.trace.timeline import COMPUTATION, FETCH, WAITING, Operator, Timeline


def operator(worker, begin, end, kind=COMPUTATION, layer="fc"):
    return Operator(worker, begin, end, f"op{begin}", kind, layer, {"direction": "forward"})


def test_shares_by_hand():
    """Worker 0 waits 2 while worker 1 works, and 3 while no worker does."""
    operators = [
        operator(0, 0, 5),
        operator(0, 7, 10, FETCH),
        operator(1, 4, 7),
        operator(1, 10, 12, FETCH),
    ]
    timeline = Timeline.of(operators, [(0, 15)], ["cpu/0", "cpu/1"])
    shares = [(s.computation, s.fetch, s.waiting, s.others) for s in timeline.shares]
    assert shares == [(5, 3, 7, 4), (3, 2, 10, 7)]
    assert timeline.busiest == 0
    assert [(each.begin, each.end, each.kind) for each in timeline.slices[0]] == [
        (0, 5, COMPUTATION), (5, 7, WAITING), (7, 10, FETCH), (10, 15, WAITING),
    ]  # fmt: skip


def test_what_lies_outside_of_the_steps_does_not_count():
    operators = [operator(0, 0, 12), operator(0, 13, 30), operator(0, 40, 50)]
    timeline = Timeline.of(operators, [(10, 14), (14, 20)], ["cpu/0"])
    assert timeline.shares[0].computation == 2 + 7
    assert timeline.duration == 10


@pytest.mark.parametrize("seed", range(20))
def test_slices_fill_the_steps_of_every_worker(seed):
    draw = random.Random(seed)
    operators = []
    for _ in range(draw.randrange(60)):
        begin = draw.uniform(-5, 100)
        kind = draw.choice([COMPUTATION, FETCH])
        operators.append(operator(draw.randrange(3), begin, begin + draw.expovariate(0.2), kind))
    timeline = Timeline.of(operators, [(0, 40), (40, 90)], ["cpu/0", "cpu/1", "cpu/2"])
    assert len(timeline.slices) == len(timeline.shares) == 3
    for slices, share in zip(timeline.slices, timeline.shares):
        assert (slices[0].begin, slices[-1].end) == (0, 90)
        assert all(one.end == other.begin for one, other in zip(slices, slices[1:]))
        assert share.busy + share.waiting == pytest.approx(90)
        assert 0 <= share.others <= share.waiting + 1e-9


def test_longest_adds_up_by_layer_direction_and_kind():
    operators = [operator(0, 0, 2), operator(0, 2, 3, FETCH), operator(0, 5, 9)]
    timeline = Timeline.of(operators, [(0, 10)], ["cpu/0"])
    assert timeline.longest(0) == [("fc forward", 6), ("fc forward fetches", 1)]


def test_a_trace_has_a_track_for_each_worker():
    timeline = Timeline.of([operator(1, 2, 5)], [(0, 10)], ["cpu/0", "cpu/1"])
    document = json.loads(json.dumps(timeline.to_document("tofu")))
    events = document["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {0: "steps", 1: "worker 0 (cpu/0)", 2: "worker 1 (cpu/1)"}
    spans = [(e["tid"], e["name"], e["cat"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert spans == [
        (0, "step 1", "step", 0, 10),
        (1, "waiting for the script", WAITING, 0, 10),
        (2, "waiting for the script", WAITING, 0, 2),
        (2, "op2", COMPUTATION, 2, 3),
        (2, "waiting for the script", WAITING, 5, 5),
    ]


def span(pid, name, begin, end, category="operator"):
    common = {"pid": pid, "tid": 9, "name": name, "cat": category}
    return [{**common, "ph": "B", "ts": begin}, {**common, "ph": "E", "ts": end}]


def test_a_profile_is_named_by_layers():
    nodes = {
        "0": Node("net_fc1_fwd@0", "FullyConnected", False),
        "1": Node("net_fc1_fwd@0/in0/fetch", "_tofu_multifetch", False),
        "2": Node("net_fc1_fwd_backward@1", "_backward_FullyConnected", False),
        "3": Node("net_fc1_bias@1/plain", "_tofu_multifetch", True),
    }
    devices = [{"ph": "M", "pid": i, "args": {"name": f"cpu/{i}"}, "name": ""} for i in range(3)]
    events = [
        *devices,
        *span(0, "0::FullyConnected", 0, 3),
        *span(0, "1::_tofu_multifetch", 3, 4, "Custom Operator"),
        *span(0, "_backward_CustomFunction", 0, 9),
        *span(0, "DeleteVariable", 4, 5),
        *span(0, "::CopyCPU2CPU", 5, 6),
        *span(0, "multi_sgd_update", 6, 7),
        *span(1, "2::2::_backward_FullyConnected", 0, 2),
        *span(1, "3::_tofu_multifetch", 2, 3),
        *span(2, "mean", 0, 1),
    ]
    found = read_profile({"traceEvents": events}, lambda name: nodes.get(name.partition("::")[0]))
    workers, operators = found
    assert workers == ["cpu/0", "cpu/1"]
    assert [(o.worker, o.name, o.kind, o.layer, o.details.get("direction")) for o in operators] == [
        (0, "net_fc1_fwd", COMPUTATION, "net_fc1", "forward"),
        (0, "net_fc1_fwd: in0/fetch", FETCH, "net_fc1", "forward"),
        (0, "copy (CopyCPU2CPU)", FETCH, "(other)", None),
        (0, "multi_sgd_update", COMPUTATION, "(updates)", None),
        (1, "net_fc1_fwd_backward", COMPUTATION, "net_fc1", "backward"),
        (1, "net_fc1_bias: plain", FETCH, "net_fc1", "forward"),
    ]
