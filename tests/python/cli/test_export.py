"""tofu export writes a problem, and tofu plan --cuts prices the plan that comes back."""

from __future__ import annotations

import contextlib
import io
import json
import os
from unittest import mock

import pytest

pytest.importorskip("mxnet")

from tofu import _core
from tofu.cli import main
from tofu.plans import Plan

TARGET = ("--batch-size=64", "mlp")


def tofu(capsys, *args):
    with pytest.raises(SystemExit) as ended:
        main.main([*map(str, args)])
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("exported")
    out, environment = io.StringIO(), mock.patch.dict(os.environ)
    with environment, contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main.main(["export", "--workers=4", "--output", str(path), *TARGET])
    assert not ended.value.code
    names = ["graph.json", "table.json", "plan.json", "step1.json", "step2.json"]
    assert out.getvalue() == f"wrote {', '.join(names)} to {path}\n"
    assert sorted(each.name for each in path.iterdir()) == sorted(names)
    return path


def cuts(folder, **changes):
    """A file of cuts, of the first weight by default."""
    path = folder / "own.json"
    document = {"format": "tofu-cuts", "version": 1, "parts": [2, 2]}
    path.write_text(json.dumps({**document, "cuts": {"mlp_dense0_weight": [1, 0]}, **changes}))
    return path


def test_the_files_are_all_that_a_search_needs(folder):
    graph = _core.Graph((folder / "graph.json").read_text())
    table = _core.StrategyTable((folder / "table.json").read_text(), graph)
    plan = Plan.from_json((folder / "plan.json").read_text())
    found = _core.plan(table, workers=4)
    assert (found.total_bytes, graph.hash) == (plan.total_bytes, plan.graph_hash)
    last = _core.solve((folder / "step2.json").read_text())
    assert json.loads(last)["cost"] == plan.total_bytes


def test_a_plan_comes_back_at_its_price(capsys, folder):
    for path in (folder / "plan.json", cuts(folder)):
        status, out, err = tofu(capsys, "plan", "--format=json", "--cuts", path, *TARGET)
        assert status == 0, err
        priced = Plan.from_json(out)
        assert priced.workers == 4
        document = json.loads(path.read_text())
        if "total_bytes" in document:
            assert priced.total_bytes == document["total_bytes"]
        else:
            assert priced.tensor("mlp_dense0_weight").cuts == (1, 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "tofu-frontier"}, 'expected "format": "tofu-cuts" or "tofu-plan"'),
        ({"version": 2}, 'and "version": 1'),
        ({"parts": [4, 1]}, "1 is no whole number from 2 on"),
        ({"parts": 4}, "expected the parts of each step"),
        ({"cuts": {"mlp_dense0_weight": [1]}}, "mlp_dense0_weight: 1 cuts for 2 steps"),
        ({"cuts": {"mlp_dense0_weight": [1, "0"]}}, "'0' is no whole number"),
        ({"cuts": {"nosuch": [1, 0]}}, "pin nosuch: the graph has no tensor of that name"),
        ({"cuts": {"mlp_dense0_weight": [1, 7]}}, "mlp_dense0_weight"),
    ],
)
def test_what_is_no_plan_is_refused(capsys, folder, changes, reason):
    path = cuts(folder, **changes)
    status, _, err = tofu(capsys, "plan", "--cuts", path, *TARGET)
    assert status == 2
    assert reason in err


def test_cuts_go_with_their_workers_and_without_pins(capsys, folder):
    path = cuts(folder)
    _, _, err = tofu(capsys, "plan", "--cuts", path, "--workers=8", *TARGET)
    assert "its steps have 2 x 2 parts, not those of --workers 8" in err
    _, _, err = tofu(capsys, "plan", "--cuts", path, "--pin=*weight=0", *TARGET)
    assert "it cuts tensors already; leave out the pins" in err
    _, _, err = tofu(capsys, "plan", "--cuts", folder / "nosuch.json", *TARGET)
    assert "nosuch.json: cannot be read" in err


def test_a_folder_that_cannot_be_written_is_named(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    _, _, err = tofu(capsys, "export", "--workers=2", "--output", tmp_path / "file", *TARGET)
    assert f"--output {tmp_path / 'file'}: cannot be written" in err


def test_a_plan_of_the_graph_that_a_run_takes_later_comes_back(capsys, tmp_path):
    """The plan cuts no example's data: its BatchNorm stays whole, in another graph."""
    import mxnet as mx

    data = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=64, no_bias=True, name="fc0")
    norm = mx.sym.BatchNorm(data, name="bn", fix_gamma=False, axis=1)
    mx.sym.FullyConnected(norm, num_hidden=64, no_bias=True, name="fc1").save(
        str(tmp_path / "net.json")
    )
    target = ("--shape=data=4,64", tmp_path / "net.json")
    status, out, err = tofu(capsys, "plan", "--workers=2", "--format=json", *target)
    assert status == 0, err
    (tmp_path / "plan.json").write_text(out)
    status, again, err = tofu(
        capsys, "plan", "--format=json", "--cuts", tmp_path / "plan.json", *target
    )
    assert status == 0, err
    planned, priced = Plan.from_json(out), Plan.from_json(again)
    assert "bn::BatchNorm" in {operator.node for operator in planned.operators}
    assert (priced.graph_hash, priced.total_bytes) == (planned.graph_hash, planned.total_bytes)
