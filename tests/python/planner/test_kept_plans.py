"""Plans and tables that an earlier run has kept in the user's cache folder."""

import dataclasses

import mxnet as mx
import pytest

import tofu
from tofu import _core
from tofu.analysis import strategy_table
from tofu.analysis.strategy_table import table_digest
from tofu.cli.main import main
from tofu.mx.model.sources import from_model
from tofu.planner import search
from tofu.plans import SearchOptions


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("TOFU_CACHE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(search, "_WORTH_KEEPING_S", 0)
    monkeypatch.setattr(strategy_table, "_WORTH_KEEPING_S", 0)


@pytest.fixture
def searches(monkeypatch):
    """The number of workers of each call of the C++ search."""
    found = []
    plan = _core.plan

    def counted(table, **options):
        found.append(options["workers"])
        return plan(table, **options)

    monkeypatch.setattr(_core, "plan", counted)
    return found


def problem(workers=4, batch_size=None):
    return from_model("mlp", batch_size=batch_size, optimizer="sgd", workers=workers)


def test_a_second_search_takes_the_first_ones_plan(searches):
    first = search.search(problem(), simulated=False).plan
    assert searches == [4]
    assert not search.is_kept(first)
    second = search.search(problem(), simulated=False).plan
    assert searches == [4]
    assert search.is_kept(second)
    assert second.to_json() == first.to_json()
    assert second.lower_bound == first.lower_bound


@pytest.mark.parametrize(
    "other",
    [
        {"workers": 2},
        {"batch_size": 256},
        {"allow_replication": True},
        {"pins": (("data", (1,)),)},
        {"mode": "spartan"},
        {"memory_limit_bytes": 2**31},
    ],
)
def test_other_graphs_and_options_are_searched(other, searches):
    search.search(problem(), simulated=False)
    graph = {name: value for name, value in other.items() if name in ("workers", "batch_size")}
    options = {name: value for name, value in other.items() if name not in graph}
    found = search.search(
        problem(**graph), dataclasses.replace(SearchOptions(), **options), simulated=False
    )
    assert len(searches) == 2
    assert not search.is_kept(found.plan)


def test_a_table_is_analysed_once(monkeypatch):
    graph = problem().graph
    first, undescribed = strategy_table.table_document(graph)
    monkeypatch.setattr(strategy_table, "row_for", lambda *_: pytest.fail("analysed again"))
    assert strategy_table.table_document(graph) == (first, undescribed)
    table, _ = strategy_table.strategy_table(graph)
    assert table_digest(table)


def test_own_descriptions_are_read_again(monkeypatch):
    graph = problem().graph
    strategy_table.table_document(graph)
    monkeypatch.setattr(strategy_table, "is_shipped", lambda op: False)
    calls = []
    row_for = strategy_table.row_for
    monkeypatch.setattr(strategy_table, "row_for", lambda *a: calls.append(a) or row_for(*a))
    strategy_table.table_document(graph)
    assert calls


def test_a_search_that_ran_out_of_time_is_not_kept(monkeypatch, searches):
    monkeypatch.setattr(search, "_stopped", lambda plan, options: "time limit")
    for _ in range(2):
        search.search(problem(), simulated=False)
    assert searches == [4, 4]


def test_a_command_says_that_it_took_an_earlier_plan(capsys):
    command = ["plan", "--workers", "4", "--count", "estimate", "mlp"]
    text = "tofu: an earlier run searched this plan (TOFU_CACHE=0 searches again)\n"
    printed = []
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code in (0, None)
        printed.append(capsys.readouterr())
    assert printed[0].out == printed[1].out
    assert printed[1].err.endswith(text)
    with pytest.raises(SystemExit):
        main(["models"])
    assert capsys.readouterr().err == ""


def test_a_run_says_that_it_took_an_earlier_plan(capsys):
    def line():
        tofu.enable(workers=2, device="cpu", log="info")
        try:
            net = mx.gluon.nn.Dense(8, prefix="net_")
            net.initialize()
            net.hybridize()
            with mx.autograd.record():
                loss = net(mx.nd.ones((8, 4)))
            loss.backward()
            mx.nd.waitall()
        finally:
            tofu.disable()
        return capsys.readouterr().err

    assert ", search 0.0" in line()
    assert ", plan of an earlier run (TOFU_CACHE=0 searches again), " in line()
