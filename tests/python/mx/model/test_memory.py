"""The exact memory of a plan: of all workers, or of the view of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from tofu import _core
from tofu.mx import extension
from tofu.mx.memory.executor_memory import predict
from tofu.mx.memory.step_memory import step_memory
from tofu.mx.model import memory
from tofu.mx.model.memory import with_memory
from tofu.mx.model.sources import from_model
from tofu.planner.search import search

SMALL = {"mlp": 8, "wresnet-50-4": 2, "transformer": 2}


def counted_with(model, workers, fetch="multifetch", **how):
    """The plan of a small model with its memory; and the plan, partitioned for all workers."""
    found = search(
        from_model(model, batch_size=SMALL[model], optimizer="sgd", workers=workers, **how)
    )
    counted = with_memory(found.problem, found.read(), fetch)
    return counted, found.plan


def contexts(step):
    return [mx.cpu(worker) for worker in range(step.workers)]


def step_of(plan, **how):
    partitioned = _core.partition(plan, fetch="multifetch", **how)
    return partitioned, _core.schedule(partitioned, joint=extension.runs_parts())


def in_order(peak):
    """The peak with a fixed order of the outputs of one fetch that are equally large."""
    return replace(peak, held=sorted(map(str, peak.held)))


@pytest.mark.parametrize("workers", [1, 3, 6, 7])
@pytest.mark.parametrize("model", sorted(SMALL))
def test_a_view_of_a_worker_holds_what_it_holds_among_all(monkeypatch, model, workers):
    """Nothing is made for the other workers, whose number may be large."""
    all_counted, plan = counted_with(model, workers)
    monkeypatch.setattr(memory, "_MOST_COUNTED", 0)
    counted, _ = counted_with(model, workers)
    partitioned, step = step_of(plan)
    of_all = step_memory(step, contexts(step))
    assert (all_counted.bytes_per_worker, all_counted.peak) == (of_all.kinds, of_all.peak)
    assert plan.fullest_worker == 0
    of_first = step_memory(step, contexts(step), view=0)
    assert counted.bytes_per_worker == of_first.kinds
    assert in_order(counted.peak) == in_order(of_first.peak)
    for each in (counted, all_counted):
        assert each.memory == "exact"
        assert each.fetched_bytes == partitioned.fetched_bytes + plan.update_bytes
        assert each.shared_bytes == partitioned.shared_bytes
        assert each.relayed_bytes == partitioned.relayed_bytes


@pytest.mark.parametrize("worker", range(6))
def test_readers_before_and_behind_a_worker_free_its_tiles_when_they_did(worker):
    _, plan = counted_with("transformer", 6)
    _, of_all = step_of(plan)
    _, view = step_of(plan, view=worker)
    for all_graph, graph in zip(of_all.graphs, view.graphs):
        expected = predict(all_graph, workers=6).live_per_worker[worker]
        assert predict(graph, workers=view.workers).live_per_worker[0] == expected
    assert step_memory(view, contexts(view), view=worker).peak.worker == worker


def test_the_worker_with_the_largest_share_is_in_view(monkeypatch):
    monkeypatch.setattr(memory, "_MOST_COUNTED", 0)
    found = search(from_model("mlp", batch_size=8, optimizer="sgd", workers=3))
    shared = found.plan.with_shares(shares=[[1, 1, 2]], multiple=1, time=None)
    assert shared.fullest_worker == 2


def test_many_workers_are_not_partitioned(monkeypatch):
    views = []
    real = _core.partition

    def note(plan, **how):
        views.append(how["view"])
        return real(plan, **how)

    monkeypatch.setattr(_core, "partition", note)
    monkeypatch.setattr(memory, "_MOST_COUNTED", 4)
    for workers, fetch in ((4, "multifetch"), (6, "multifetch"), (6, "plain")):
        counted_with("mlp", workers, fetch)
    assert views == [None, 0, None]


def test_the_memory_of_very_many_plain_fetches_stays_an_estimate(monkeypatch):
    """They go through roots, which only the graph of all workers shows."""
    monkeypatch.setattr(memory, "_MOST_PLAIN_WORKERS", 4)
    kinds = [counted_with("mlp", workers, "plain")[0].memory for workers in (4, 6)]
    assert kinds == ["exact", "estimate"]
