"""tofu.plan(...): plans of names, files, symbols and blocks as objects."""

from __future__ import annotations

import json
import subprocess
import sys

import mxnet as mx
import pytest

import tofu
import tofu.plans
from tofu.errors import ConfigError, GraphError, PlanError
from tofu.plans import file as plan_file


def make_net():
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(16), mx.gluon.nn.Dense(8))
    return net


@pytest.fixture(scope="module")
def planned():
    return tofu.plan(make_net(), (32, 12), workers=4)


def test_plan_is_a_function():
    """Importing submodules does not replace the function."""
    text = (
        "import types, tofu.plans.options, tofu\n"
        "assert 'plan' in dir(tofu) and type(tofu.plan) is types.FunctionType\n"
        "plan = tofu.plan('mlp', workers=2, batch_size=8)\n"
        "assert type(plan).__name__ == 'GraphPlan'\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_a_plan_of_a_block(planned):
    assert planned.workers == 4
    assert planned.bytes == sum(operator.bytes for operator in planned.operators) > 0
    assert planned.lower_bound_bytes <= planned.bytes
    assert planned.tensor("dense0_weight").shape == (16, 12)
    assert planned.tensor("net_dense0_weight") is planned.tensor("dense0_weight")
    assert {layer.name for layer in planned.layers} >= {"net_dense0", "net_dense1"}
    assert repr(planned).startswith("<tofu.plan of net: 4 workers (2 x 2), ")


def test_memory_is_exact(planned):
    assert set(planned.memory) >= {"parameters", "gradients", "activations", "fetch_buffers"}
    assert json.loads(planned.to_json())["memory"] == "exact"
    assert " (an estimate)" not in str(planned)


def test_texts_and_pages(planned):
    assert str(planned) == planned.to_text()
    assert "net_dense0_fwd" in planned.to_text()
    assert "net_dense0_fwd" not in planned.to_text(layers=True)
    assert planned.to_html().startswith("<!DOCTYPE html>")
    frame = planned._repr_html_()
    assert frame.startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;')
    assert frame.count('"') == 6  # those of its attributes: the page's are escaped
    assert "Tensor net_dense0_weight (16x12 float32)" in planned.explain("dense0_weight")
    assert planned.explain("*_bias").count("step 1 of 2") >= 2


def test_a_saved_plan_is_found_again(planned, tmp_path):
    planned.save(tmp_path / "net.plan")
    file = plan_file.read(tmp_path / "net.plan")
    assert file.plan_for(planned.problem.table, 4).total_bytes == planned.bytes
    assert file.read_plans()[0].tensors == planned.tensors


def test_a_symbol_and_its_file_have_the_same_plan(tmp_path):
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="fc")
    symbol.save(str(tmp_path / "net-symbol.json"))
    options = {"workers": 2, "shapes": {"data": (4, 6)}, "optimizer": "adam"}
    of_symbol = tofu.plan(symbol, **options)
    of_file = tofu.plan(tmp_path / "net-symbol.json", **options)
    assert of_symbol.tensors == of_file.tensors
    plain = tofu.plan(symbol, workers=2, shapes={"data": (4, 6)}, optimizer=None)
    assert len(plain.tensors) < len(of_file.tensors)
    predicted = tofu.plan(symbol, workers=2, shapes={"data": (4, 6)}, predict=True)
    assert len(predicted.operators) == 1


def test_what_a_block_freezes_gets_no_gradient():
    net = make_net()
    net[0].weight.grad_req = "null"
    names = {tensor.name for tensor in tofu.plan(net, (32, 12), workers=2).tensors}
    assert "net_dense1_weight_update" in names
    assert "net_dense0_weight_update" not in names


def test_options_reach_the_search():
    pinned = tofu.plan(make_net(), (32, 12), workers=2, pins={"*_weight": 1})
    assert {pinned.tensor(f"dense{n}_weight").cuts for n in (0, 1)} == {(1,)}
    rows = tofu.plan(make_net(), (32, 12), workers=2, search="AllRow-Greedy")
    assert rows.details.mode == "allrow-greedy"
    free = tofu.plan(make_net(), (32, 12), workers=2, allow_replication=True)
    assert free.bytes < tofu.plan(make_net(), (32, 12), workers=2).bytes
    symbol = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="fc")
    double = tofu.plan(symbol, workers=2, shapes={"data": (4, 6)}, dtypes={"": "float64"})
    assert {tensor.dtype_name for tensor in double.tensors} == {"float64"}


def test_workers_are_those_of_a_run(monkeypatch):
    monkeypatch.setenv("TOFU_WORKERS", "3")
    assert tofu.plan(make_net(), (33, 12)).workers == 3


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        (("nosuch",), {}, ConfigError, "no model 'nosuch'"),
        (("absent.json",), {}, ConfigError, "absent.json: no such file, and no model's name"),
        (("mlp",), {"workers": 0}, ConfigError, "tofu.plan: workers=0: expected a whole number"),
        (("mlp",), {"search": "best"}, ConfigError, "tofu.plan: search=best: no such search"),
        (("mlp",), {"optimizer": "lars"}, ConfigError, "optimizer='lars': expected 'sgd'"),
        (("mlp",), {"time_limit_s": 0}, ConfigError, "time_limit_s=0: expected seconds above 0"),
        (("mlp",), {"pins": 3}, ConfigError, "tofu.plan: pins=3: expected a dict"),
        (("mlp",), {"pins": {"nosuch*": 0}}, PlanError, "the graph has no tensor that fits"),
        (("mlp",), {"shapes": {"data": (1,)}}, ConfigError, "mlp has its own shapes"),
        (("mlp", (1, 2)), {}, ConfigError, "inputs are only for a block"),
        ((3,), {}, ConfigError, "tofu.plan: int: expected a model's name, a symbol"),
    ],
)
def test_arguments_of_no_use_are_refused(args, options, error, message):
    with pytest.raises(error) as raised:
        tofu.plan(*args, **{"workers": 2, **options})
    assert message in str(raised.value)


def test_blocks_of_no_use_are_refused():
    with pytest.raises(ConfigError, match="a block needs the shapes of its inputs"):
        tofu.plan(make_net(), workers=2)
    with pytest.raises(ConfigError, match="batch_size is only for a model's name"):
        tofu.plan(make_net(), (4, 12), workers=2, batch_size=4)

    class Broken(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            raise RuntimeError("no way")

    with pytest.raises(GraphError, match=r"cannot be traced \(RuntimeError: no way\)"):
        tofu.plan(Broken(), (4, 12), workers=2)


def test_names_of_no_use_are_refused(planned):
    with pytest.raises(ConfigError, match=r"weight: 0 tensors of that name; did you mean net_"):
        planned.tensor("weight")
    with pytest.raises(ConfigError, match="nosuch: no tensor or operator of that name"):
        planned.explain("nosuch")
