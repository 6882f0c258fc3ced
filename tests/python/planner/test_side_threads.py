"""Side threads count memory during searches, and end with them."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("mxnet")

from tofu import _core
from tofu.errors import InternalError
from tofu.planner import sweep
from tofu.planner.estimate import estimate
from tofu.planner.search import search
from tofu.planner.side_threads import side_threads
from tofu.planner.sources import from_model
from tofu.planner.sweep import Measure, Trial

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
    searched = sweep.searched_trial

    def note(trial):
        told.append(f"search {trial.name}")
        return searched(trial)

    monkeypatch.setattr(sweep, "searched_trial", note)
    for outcome in sweep.sweep(
        [Trial(str(k), mlp(k)) for k in (1, 2, 3, 4)], Measure.of(exact=True)
    ):
        assert outcome.plan.memory == "exact"
        told.append(f"outcome {outcome.trial.name}")
    assert told == [
        "search 1", "search 2", "search 3", "outcome 1", "search 4", "outcome 2", "outcome 3",
        "outcome 4",
    ]  # fmt: skip


def test_memory_is_the_same_as_counted_in_turn(monkeypatch):
    def rows():
        return [
            (each.plan.bytes_per_worker, each.plan.peak)
            for each in estimate(mlp, workers=(2, 3, 5))
        ]

    beside = rows()
    monkeypatch.setattr(Measure, "runs_beside", False)
    assert rows() == beside
