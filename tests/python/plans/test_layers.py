"""Layers of a plan, patterns of names, and the difference of two plans."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tofu.errors import PlanError
from tofu.plans import Plan
from tofu.plans.layers import direction_of, layer_of, layers_of
from tofu.plans.names import matching, near_text, readable
from tofu.plans.options import check_pins, pinned
from tofu.plans.plan import OperatorPlan
from tofu.plans.render.difference import differ, render_difference
from tofu.plans.render.layers import render_layers

from .documents import document, stack


def tensor(node, shape, cuts, output=0):
    return {"node": node, "output": output, "shape": shape, "dtype": 0, "cuts": cuts}


def operator(node, op, cuts, size):
    return {"node": node, "op": op, "cuts": cuts, "bytes": size}


def net(**changes):
    """A plan of one dense layer and its training step."""
    tensors = [
        tensor("data", [8, 6], [0, 0]),
        tensor("net_dense0_weight", [4, 6], [0, -1]),
        tensor("net_dense0_fwd", [8, 4], [0, 1]),
        tensor("net_dense0_fwd_backward", [8, 6], [0, 0]),
        tensor("net_dense0_fwd_backward", [4, 6], [0, -1], 1),
        tensor("net_dense0_weight_update", [4, 6], [0, -1]),
    ]
    operators = [
        operator("net_dense0_fwd", "FullyConnected", ["b", "o"], 100),
        operator("net_dense0_fwd_backward", "_backward_FullyConnected", ["b", "b"], 200),
        operator("net_dense0_weight_update", "sgd_update", ["i0", None], 7),
    ]
    made = document(tensors=tensors, operators=operators, model="net", nodes=5)
    return Plan.from_json(json.dumps({**made, **changes}))


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("wresnet_batchnorm0_fwd_backward::mean_2", "wresnet_batchnorm0"),
        ("wresnet_batchnorm0_fwd::mean", "wresnet_batchnorm0"),
        ("transformer_attention1_softmax0::total_backward", "transformer_attention1"),
        ("wresnet_batchnorm0_gamma:mom", "wresnet_batchnorm0"),
        ("rnn_lstm0_t12_i2h", "rnn_lstm0"),
        ("rnn_lstm0_i2h_weight", "rnn_lstm0"),
        ("grad_sum_0_1", "(sums of gradients)"),
        ("transformer_attention1_reshape0_backward", "transformer_attention1"),
        ("wresnet_batchnorm0_running_mean", "wresnet_batchnorm0"),
        ("data", "data"),
        ("layers.0.ln_1.weight", "layers.0.ln_1"),
        ("layers.0.ln_1.weight/state1", "layers.0.ln_1"),
        ("layers.0.ln_1.native_layer_norm_backward", "layers.0.ln_1"),
        ("_update", "_update"),
        ("", ""),
    ],
)
def test_the_layer_of_a_name(name, layer):
    is_variable = any(word in name for word in ("weight", "gamma", "running"))
    assert layer_of(name, is_variable=is_variable) == layer


def test_the_direction_of_an_operator():
    found = [direction_of(each) for each in net().operators]
    assert found == ["forward", "backward", "update"]
    assert direction_of(OperatorPlan("grad_sum_3", "add_n", (), 0)) == "backward"
    # A variance is a sum of products, which MXNet has only as a gradient.
    stage = OperatorPlan("norm0_fwd::variance", "_backward_Convolution", (), 0)
    assert direction_of(stage) == "forward"
    for name in ("norm0_fwd_backward::mean", "norm0_fwd::mean_backward"):
        assert direction_of(OperatorPlan(name, "sum", (), 0)) == "backward"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("net_norm0_fwd::mean", "net_norm0: mean"),
        ("net_norm0_fwd_backward::mean_3[1]", "net_norm0: gradient, mean 3[1]"),
        ("net_layernorm0_fwd::mean_backward", "net_layernorm0: gradient, mean"),
        ("net_rnn0_fwd::layer1_step3::sum", "net_rnn0: layer1 step3, sum"),
        ("net_softmax0::total", "net_softmax0: total"),
        ("net_weight:mean", "net_weight:mean"),
        ("conv0_fwd_backward[1]", "conv0_fwd_backward[1]"),
    ],
)
def test_stages_are_named_after_their_operator(name, shown):
    assert readable(name) == shown
    known = ["net_norm0_fwd", name, "other_norm0_fwd::other"]
    assert matching(shown, known) == matching(shown.replace(" ", ""), known) == [name]


def test_a_stage_needs_no_whole_name():
    known = ["net_norm0_fwd::mean", "net_norm0_fwd::mean_2", "net_norm10_fwd::mean"]
    assert matching("norm0: mean", known) == ["net_norm0_fwd::mean"]
    assert matching("norm0: mean 2", known) == ["net_norm0_fwd::mean_2"]
    assert matching("norm: mean", known) == []
    assert near_text("norm0: meen", known).startswith("; did you mean net_norm0: mean")


def test_layers_have_the_bytes_of_their_tensors_and_operators():
    data, dense = layers_of(net())
    assert (data.name, data.total_bytes, data.worker_bytes) == ("data", 0, 48)
    assert dense.name == "net_dense0"
    assert dense.parameter_bytes == 96  # the weight, neither its gradient nor its update
    assert dense.fetched_bytes == {"forward": 100, "backward": 200, "update": 7}
    # A worker holds half of each 4x6 tensor, which one step leaves whole, and a quarter of others.
    assert dense.worker_bytes == 3 * 48 + 32 + 48


def test_layers_as_a_table():
    text = render_layers(net())
    (row,) = [line for line in text.splitlines() if line.startswith("net_dense0 ")]
    assert row.split()[-8:] == ["100", "bytes", "200", "bytes", "7", "bytes", "307", "bytes"]
    alike = [line.split()[:3] for line in render_layers(stack()).splitlines() if "x 40" in line]
    assert alike == [["layer*_fc", "x", "40"], ["layer*", "x", "40"]]


# --- names --------------------------------------------------------------------------------------

NAMES = [
    "net_fc1_weight", "net_fc1_bias", "net_fc2_weight", "split[1]", "other_fc3_bias",
    "layers.0.ln.weight",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("net_fc1_bias", ["net_fc1_bias"]),
        ("*_weight", ["net_fc1_weight", "net_fc2_weight"]),
        ("net_fc?_bias", ["net_fc1_bias"]),
        ("fc2_weight", ["net_fc2_weight"]),
        ("weight", []),  # the end of two tensors' names
        ("c2_weight", []),  # does not begin at a part of a name
        ("split[1]", ["split[1]"]),
        ("*[1]", ["split[1]"]),
        ("nothing*", []),
        ("ln.weight", ["layers.0.ln.weight"]),
        ("n.weight", []),
    ],
)
def test_names_patterns_and_ends(name, found):
    assert matching(name, NAMES) == found


def test_a_guess_at_a_name():
    assert near_text("weight", NAMES[:4]) == "; did you mean net_fc1_weight, net_fc2_weight?"
    assert near_text("net_fc1_wieght", NAMES).startswith("; did you mean net_fc1_weight")
    assert near_text("zzz", NAMES) == ""


def test_pins_of_patterns():
    pins = [("*_weight", (0,)), ("net_fc1_weight", (1,)), ("fc3_bias", (0,)), ("nosuch*", (0,))]
    assert pinned(pins, NAMES) == (
        {"net_fc1_weight": (1,), "net_fc2_weight": (0,), "other_fc3_bias": (0,)},
        ["nosuch*"],
    )
    with pytest.raises(PlanError, match=r"pin nosuch\*: the graph has no tensor that fits"):
        check_pins(pins, NAMES)
    conflict = [("*_weight", (0,)), ("net_*", (1,))]
    expected = r"pin net_\*: net_fc1_weight also fits the pin \*_weight, which cuts it differently"
    with pytest.raises(PlanError, match=expected):
        pinned(conflict, NAMES)


# --- difference ---------------------------------------------------------------------------------


def test_plans_that_are_alike():
    assert not differ(net(), net(search_seconds=5.0))
    text = render_difference(net(), net(), ("a", "b"))
    assert text.endswith("the plans cut everything alike\n")
    assert text.count("\n") == 3


def changed():
    tensors = [dict(each) for each in json.loads(net().to_json())["tensors"]]
    tensors[1]["cuts"] = [1, -1]
    tensors[2]["shape"] = [16, 4]
    operators = [dict(each) for each in json.loads(net().to_json())["operators"]]
    operators[0]["bytes"] = 2148
    operators[2]["node"] = "net_dense1_weight_update"
    return net(
        tensors=tensors[:5], operators=operators, total_bytes=3584,
        bytes_per_worker={"parameters": 2048, "total": 2048},
    )  # fmt: skip


def test_what_differs_is_told():
    before = net(bytes_per_worker={"parameters": 1024, "fetch_buffers": 10, "total": 1034})
    lines = render_difference(before, changed(), ("a", "b")).splitlines()
    rows = [line.split("  ") for line in lines]
    found = {row[0].strip(): " ".join(part.strip() for part in row[1:] if part) for row in rows}
    assert found["communicated per step"] == "1.5 KiB 3.5 KiB +2.0 KiB"
    assert found["a worker's parameters"] == "1.0 KiB 2.0 KiB +1.0 KiB"
    assert found["a worker's fetch buffers"] == "10 bytes 0 bytes -10 bytes"
    assert found["a worker, in all"] == "1.0 KiB 2.0 KiB +1,014 bytes"
    assert found["net_dense0"] == "307 bytes 2.3 KiB +2.0 KiB"
    assert found["net_dense1"] == "0 bytes 7 bytes +7 bytes"
    assert found["net_dense0_weight"] == "4x6 2x1=, 0 - 1x2=, 1 -"
    assert found["net_dense0_fwd"] in (
        "8x4 | 16x4 2x2, 0 1 2x2, 0 1",
        "FullyConnected b o, 100 b o, 2,148",
    )
    assert "8x4 | 16x4" in "\n".join(lines)
    assert found["net_dense0_weight_update"] == "sgd_update i0 -, 7 (none)"
    assert differ(net(), changed())


def test_long_differences_are_cut():
    other = dataclasses.replace(
        stack(), tensors=tuple(dataclasses.replace(t, cuts=(-1, -1)) for t in stack().tensors)
    )
    text = render_difference(stack(), other, ("a", "b"))
    assert "... and 60 more tensors; --all shows all" in text
    assert "more tensors" not in render_difference(stack(), other, ("a", "b"), everything=True)
