"""Side threads count memory during searches, and end with them."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

pytest.importorskip("mxnet")

from tofu import _core
from tofu.errors import InternalError
from tofu.mx.model.sources import from_model
from tofu.planner import search as searching
from tofu.planner import sweep
from tofu.planner.estimate import estimate
from tofu.planner.model import Devices
from tofu.planner.search import search
from tofu.planner.side_threads import side_threads
from tofu.planner.sweep import Measure, Trial
from tofu.plans.progress import SearchProgress

_HANGS_S = 60


def mlp(workers):
    return from_model("mlp", batch_size=16, optimizer="sgd", workers=workers)


def test_what_still_runs_ends_with_the_context():
    plan = search(mlp(8)).plan
    begun = threading.Event()

    def run():
        until = time.monotonic() + _HANGS_S
        while time.monotonic() < until:
            _core.partition(plan, fetch="multifetch")
            begun.set()

    def interrupted():
        with side_threads() as start:
            waits.extend(start(run) for _ in range(9))
            assert begun.wait(_HANGS_S)
            raise KeyboardInterrupt

    waits = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(InternalError, match="the computation was ended"):
        waits[0]()
    _core.partition(plan, fetch="multifetch")  # other threads go on


def test_the_next_plans_are_searched_while_one_is_measured(monkeypatch):
    told = []
    monkeypatch.setattr(sweep, "most_at_once", lambda: 2)
    real = sweep.begin_search

    def note(problem, options, *, start):
        told.append(f"begin {problem.workers}")
        wait = real(problem, options, start=start)

        def waits():
            told.append(f"search {problem.workers}")
            return wait()

        return waits

    monkeypatch.setattr(sweep, "begin_search", note)
    for outcome in sweep.sweep(
        [Trial(str(k), mlp(k)) for k in (1, 2, 3, 4, 5)], Measure(exact=True)
    ):
        assert outcome.plan.memory == "exact"
        told.append(f"outcome {outcome.trial.name}")
    assert told == [
        "begin 1", "begin 2", "begin 3", "search 1", "outcome 1", "begin 4", "begin 5", "search 2",
        "search 3", "search 4", "outcome 2", "search 5", "outcome 3", "outcome 4", "outcome 5",
    ]  # fmt: skip


def test_a_sweep_searches_on_side_threads_what_a_search_finds(monkeypatch):
    """The graph with whole BatchNorms comes from MXNet, which only the main thread may call."""
    problem = from_model("wresnet-50-4", batch_size=2, optimizer=None, workers=2)
    alone = search(problem, simulated=False)
    assert alone.problem.origin is not None
    threads = []
    real = searching.search_plan

    def note(table, *args, **options):
        threads.append((table is problem.table, threading.current_thread().name.partition("_")[0]))
        return real(table, *args, **options)

    monkeypatch.setattr(searching, "search_plan", note)
    (outcome,) = sweep.sweep([Trial("", problem)], Measure())
    assert threads == [(True, "tofu-side"), (False, "MainThread")]
    assert outcome.problem.graph.hash == alone.problem.graph.hash
    assert outcome.plan.tensors == alone.read().tensors


def test_a_search_beside_is_shown_while_it_is_waited_for(monkeypatch):
    heard = []

    class Shown(SearchProgress):
        def __init__(self, *limits):
            super().__init__(*limits)
            self.heard = lambda *known: heard.append((id(self), *known))

    shown = []
    monkeypatch.setattr(searching, "SearchProgress", Shown)
    monkeypatch.setattr(
        searching, "shown", lambda each: shown.append(id(each)) or contextlib.nullcontext()
    )
    list(sweep.sweep([Trial("2", mlp(2)), Trial("4", mlp(4))], Measure()))
    assert len(shown) == 2
    assert {each[0] for each in heard} == set(shown)


def test_memory_is_the_same_as_counted_in_turn(monkeypatch):
    def rows():
        return [
            (each.plan.bytes_per_worker, each.plan.peak)
            for each in estimate(
                lambda each: mlp(each.workers), devices=[Devices(2), Devices(3), Devices(5)]
            )
        ]

    beside = rows()
    monkeypatch.setattr(Measure, "runs_beside", False)
    assert rows() == beside
