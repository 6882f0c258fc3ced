"""The exact memory of a plan: workers that do the same are counted once."""

from __future__ import annotations

import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from tofu import _core
from tofu.mx import extension
from tofu.mx.memory.step_memory import step_memory
from tofu.mx.model import memory
from tofu.mx.model.memory import with_memory
from tofu.mx.model.sources import from_model
from tofu.planner.search import search
from tofu.plans import SearchOptions

SMALL = {"mlp": 8, "wresnet-50-4": 2, "transformer": 2}


@pytest.mark.parametrize("workers", [1, 3, 6, 7])
@pytest.mark.parametrize("model", sorted(SMALL))
def test_copies_of_workers_hold_and_fetch_what_all_workers_do(model, workers):
    found = search(from_model(model, batch_size=SMALL[model], optimizer="sgd", workers=workers))
    counted = with_memory(found.problem, found.read(), "multifetch")
    partitioned = _core.partition(found.plan, fetch="multifetch")
    step = _core.schedule(partitioned, joint=extension.runs_parts())
    of_all = step_memory(step, [mx.cpu(worker) for worker in range(workers)])
    assert (counted.bytes_per_worker, counted.peak) == (of_all.kinds, of_all.peak)
    fetched = partitioned.fetched_bytes + found.plan.update_bytes
    assert counted.fetched_bytes == fetched
    assert counted.shared_bytes == partitioned.shared_bytes
    assert counted.relayed_bytes == partitioned.relayed_bytes


def test_only_the_workers_of_one_copy_are_partitioned(monkeypatch):
    problem = from_model("mlp", batch_size=8, optimizer="sgd", workers=6)
    found = search(problem, SearchOptions(equal_tiles=True))
    assert found.plan.parts == [3, 2], "nothing of it divides by 3"
    partitioned = []
    real = _core.partition

    def note(plan, **how):
        partitioned.append(plan.workers)
        return real(plan, **how)

    monkeypatch.setattr(_core, "partition", note)
    with_memory(found.problem, found.read(), "multifetch")
    with_memory(found.problem, found.read(), "plain")
    assert partitioned == [2, 6]


def test_the_memory_of_very_many_workers_stays_an_estimate(monkeypatch):
    """Fetches between all pairs of workers would take hours to partition."""
    monkeypatch.setattr(memory, "_MOST_WORKERS", 2)
    kinds = {}
    for workers in (6, 4):  # of the six, two differ
        problem = from_model("mlp", batch_size=8, optimizer="sgd", workers=workers)
        found = search(problem, SearchOptions(equal_tiles=True))
        plan = found.read()
        kinds[workers] = with_memory(found.problem, plan, "multifetch").memory
    assert kinds == {6: "exact", 4: "estimate"}
