"""Plans recompute no more than a memory limit needs, and say how much."""

import dataclasses
import json

import pytest

pytest.importorskip("mxnet")

from mxnet.gluon import nn

import tofu
from tofu import _core
from tofu.cli import main
from tofu.config import Config
from tofu.errors import ConfigError, MemoryLimitError
from tofu.planner import recomputation as recompute
from tofu.planner.frontier import frontier, unbeaten
from tofu.planner.limits import Fit, held_bytes
from tofu.planner.recomputation import Recomputation, fit_with_recomputation, recomputed
from tofu.planner.sweep import Measure
from tofu.plans import Plan, SearchOptions
from tofu.plans import file as plan_file


@dataclasses.dataclass
class FakeTable:
    """A graph that holds 1,000 bytes, and those of its 1,000 bytes of activations that stay."""

    kept: int

    @property
    def held(self):
        return 1000 + self.kept


def fake_recomputed(table, limit_bytes=0):
    kept = min(max(limit_bytes, 200), 1000)
    return Recomputation(
        FakeTable(kept), limit_bytes, int(kept < 1000), 1, 1000, kept, 1000 - kept, 3000
    )


@pytest.fixture
def fits(monkeypatch):
    """Find the graph that fits a limit, and all graphs that were tried."""
    monkeypatch.setattr(recompute, "recomputed", fake_recomputed)

    def find(limit, mode="auto"):
        tried = []

        def fit_graph(table, repeats):
            assert repeats == (table.kept < 1000)
            tried.append(table.kept)
            return Fit(table.kept, table.held, limit is None or table.held <= limit)

        table = FakeTable(1000)
        return fit_with_recomputation(table, fit_graph, mode, limit, lambda: table), tried

    return find


def test_nothing_is_computed_again_where_it_fits(fits):
    for limit in (2000, None):
        found, tried = fits(limit)
        assert (found.recomputation, tried) == (None, [1000])
    found, tried = fits(None, "all")
    assert found.recomputation.bytes == 200
    assert tried == [200, 1000]


def test_nothing_is_computed_again_where_that_holds_more(fits, monkeypatch):
    monkeypatch.setattr(FakeTable, "held", property(lambda table: 2000 - table.kept))
    assert fits(None, "all")[0].recomputation is None
    assert fits(500)[0].recomputation is None


def test_a_limit_gets_as_little_recomputation_as_it_needs(fits):
    found, tried = fits(1500)
    assert tried[:2] == [1000, 200]
    assert found.fit == Fit(500, 1500, True)
    assert found.recomputation.cost == 500
    assert found.recomputation.computation == pytest.approx(1 + 500 / 3000)


def test_a_guess_that_finds_the_same_graph_again_is_not_made(fits, monkeypatch):
    """Activations come in steps of 100 bytes, and what runs again takes 11 bytes more."""

    def in_steps(table, limit_bytes=0):
        return fake_recomputed(table, limit_bytes // 100 * 100)

    def held(table):
        return 1000 + table.kept + (11 if table.kept < 1000 else 0)

    monkeypatch.setattr(recompute, "recomputed", in_steps)
    monkeypatch.setattr(FakeTable, "held", property(held))
    fit, tried = fits(1610)
    assert fit.recomputation.bytes == 500
    assert tried == [1000, 200, 600, 500]


def test_what_does_not_fit_either_way_is_the_least(fits):
    found, tried = fits(1100)
    assert found.fit == Fit(200, 1200, False)
    assert tried == [1000, 200]
    found, tried = fits(1100, "none")
    assert found.fit == Fit(1000, 2000, False)
    assert tried == [1000]


# --- real graphs ----------------------------------------------------------------------------


def net(layers=12):
    block = nn.HybridSequential(prefix="deep_")
    with block.name_scope():
        for _ in range(layers):
            block.add(nn.Dense(64, activation="tanh", in_units=64), nn.LayerNorm(in_channels=64))
    block.initialize()
    return block


def planned(**options):
    return tofu.plan(net(), (4096, 64), workers=2, **options)


def test_what_runs_again_is_told():
    plain, most = planned(), planned(recompute="all")
    assert plain.details.recompute is None
    told = most.details.recompute
    assert told["segments"] > 1
    assert 1 < told["computation"] < 1.35
    assert told["bytes"] < 0.5 * told["saved_bytes"]
    assert most.memory["activations"] < 0.6 * plain.memory["activations"]
    assert " segments run again in the backward pass: 1." in str(most)
    again = [node for node in most.problem.graph.nodes if node.name.endswith("_again")]
    assert len(again) == told["operators"]
    for node in again:
        assert node.attrs[_core.repeats_attribute] == node.name[: -len("_again")]
        assert most.tensor(node.name).cuts == most.tensor(node.name[: -len("_again")]).cuts
    assert not any(node.op.startswith("_backward") for node in again)


def test_a_limit_between_the_two_recomputes_less_than_all():
    plain, most = planned(), planned(recompute="all")
    sizes = [sum(each.memory.values()) for each in (most, plain)]
    found = planned(memory=f"{sum(sizes) // 2}B")
    assert sum(found.memory.values()) <= sum(sizes) // 2
    assert 1 < found.details.recompute["computation"] < most.details.recompute["computation"]
    with pytest.raises(MemoryLimitError, match="a smaller batch, recomputation"):
        planned(memory=f"{sum(sizes) // 2}B", recompute="none")
    with pytest.raises(ConfigError, match=r"tofu\.plan: recompute=some: expected one of auto"):
        planned(recompute="some")


def test_a_saved_plan_knows_what_it_recomputes(tmp_path):
    path = tmp_path / "deep.plan"
    found = planned(recompute="all")
    found.save(path)
    file = plan_file.read(path)
    assert file.recomputations(2) == [0]
    assert file.recomputations(3) == []
    table = recomputed(planned().problem.table, 0).table
    assert table.graph.hash == found.problem.graph.hash
    assert file.plan_for(table, 2).total_bytes == found.bytes
    (shown,) = file.read_plans()
    assert shown.recompute == found.details.recompute


def test_a_frontier_with_recomputation_goes_further_down():
    problem = planned().problem
    seconds = [3.0]

    def predict(_, plan):
        seconds[0] += 0.01
        return seconds[0] * (plan.recompute or {"computation": 1})["computation"]

    points = list(
        frontier(
            problem, SearchOptions(), limits=1,
            measure=Measure(step_seconds=predict), recompute=True,
        )
    )  # fmt: skip
    least = unbeaten(points)[0]
    assert "x the computation" in least.name
    assert least.problem.graph.hash == least.plan.graph_hash
    assert least.problem.graph.hash != problem.graph.hash
    plain = [point for point in points if point.problem.table is problem.table]
    assert least.held_bytes < min(point.held_bytes for point in plain)


def test_the_setting_is_checked():
    assert Config.from_environment({}).recompute == "auto"
    assert Config.from_environment({"TOFU_RECOMPUTE": "ALL"}).recompute == "all"
    with pytest.raises(ConfigError, match=r"^TOFU_RECOMPUTE=most: expected one of auto, none, all"):
        Config.from_environment({"TOFU_RECOMPUTE": "most"})


def test_the_command_computes_again(capsys, monkeypatch):
    for name in ("TOFU_RECOMPUTE", "TOFU_MEMORY", "TOFU_WORKERS", "MXNET_GRAPH_PASS"):
        monkeypatch.setenv(name, "")  # makes monkeypatch undo what the command sets
    with pytest.raises(SystemExit) as ended:
        main.main(
            ["plan", "--workers=2", "--batch-size=64", "--format=json", "--recompute=all", "mlp"]
        )
    assert not ended.value.code
    found = Plan.from_json(json.dumps(json.loads(capsys.readouterr().out)))
    assert found.recompute["operators"] > 0
    assert held_bytes(found) > 0
