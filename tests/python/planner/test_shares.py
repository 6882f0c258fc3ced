"""Shares for the devices of a mixed machine."""

from __future__ import annotations

import dataclasses
import json

import pytest

pytest.importorskip("mxnet")

from tofu.mx.model.sources import from_model
from tofu.planner.search import BY_SPEED, search
from tofu.planner.shares import device_speeds, refined_shares, shares_of
from tofu.plans import Plan, SearchOptions
from tofu.plans.machine_files import machine_text, read_machine
from tofu.plans.render.text import render_text

from ..equality.mixed_machine import mixed_machine

MIXED = SearchOptions(objective="time", machine="4a100-4v100")


def test_a_step_gives_what_its_workers_should_have():
    assert shares_of((2, 2), (3, 3, 1, 1)) == ((750, 250), ())
    assert shares_of((2, 2), (3, 1, 3, 1)) == ((), (750, 250))
    assert shares_of((4,), (1, 1, 1, 2)) == ((200, 200, 200, 400),)
    assert shares_of((2, 2), (1, 1, 1, 1.001)) == ()


@dataclasses.dataclass
class Step:
    """A simulated step of workers whose load is their share."""

    loads: list
    fits: bool

    @property
    def workers(self):
        return [
            {"seconds": {"compute": seconds}, "allocated_bytes": held, "memory_bytes": memory}
            for seconds, held, memory in self.loads
        ]


def simulated(speeds, memories):
    def simulate(shares):
        parts = [share / sum(shares[0]) for share in shares[0]]
        loads = [
            (part / speed, int(1000 * part), memory)
            for part, speed, memory in zip(parts, speeds, memories)
        ]
        return Step(loads, all(held <= memory for _, held, memory in loads))

    return simulate


def test_shares_follow_what_devices_really_take():
    *_, last = refined_shares((2,), "fs", (1, 1.5), simulated((1, 3), (1000, 1000)))
    assert last[0][1] / last[0][0] == pytest.approx(3, rel=0.1)


def test_a_device_gets_no_more_than_it_holds():
    found = list(refined_shares((2,), "fs", (1, 1.5), simulated((1, 1), (1000, 400))))
    assert found[0] == ((400, 600),)
    assert all(shares[0][1] <= 400 for shares in found[1:])


@pytest.fixture(scope="module")
def problem():
    return from_model("mlp", batch_size=512, optimizer="sgd", workers=8)


def test_faster_devices_compute_more(problem):
    speeds = device_speeds(problem.table, read_machine("4a100-4v100"), 8)
    assert len(set(speeds[:4])) == len(set(speeds[4:])) == 1
    assert 1.1 < speeds[0] / speeds[7] < 2.5
    assert len(set(device_speeds(problem.table, read_machine("8xh100"), 8))) == 1


def on(path, **options):
    """The options of a search for time on the mixed machine of the tests."""
    path.write_text(json.dumps(mixed_machine(4, **options)))
    return dataclasses.replace(MIXED, machine=str(path))


def test_slower_devices_get_smaller_tiles_where_that_is_faster(problem, tmp_path):
    chosen = search(problem, on(tmp_path / "machine.json"))
    times = dict(chosen.simulated_ns)
    fastest = min(times, key=times.__getitem__)
    assert times[fastest] == round(chosen.simulation.step_seconds * 1e9)
    assert fastest.endswith("tiles by speed")
    # All devices compute equally long; before, two thirds of the machine's speed was idle.
    assert times[fastest] < 0.6 * min(times["time"], times["bytes"])
    plan = chosen.read()
    fast, slow = plan.parts.shares[0]
    assert 2.5 * slow < fast < 3.5 * slow
    assert chosen.plan.lower_bound == 0 and plan.status == "feasible"
    text = render_text(plan)
    assert "devices differ, and so do tiles: step 1 gives its parts 7" in text
    assert "tiles by speed takes" in text
    assert plan == Plan.from_json(plan.to_json())


def test_every_worker_fits_its_own_device(problem, tmp_path):
    path = tmp_path / "machine.json"
    equal = search(problem, dataclasses.replace(on(path), equal_tiles=True))
    held = max(worker["allocated_bytes"] for worker in equal.simulation.workers)
    small = held // 2
    options = on(path, memory=small)
    assert not search(problem, dataclasses.replace(options, equal_tiles=True)).simulation.fits
    chosen = search(problem, options)
    assert chosen.simulation.fits
    assert max(worker["allocated_bytes"] for worker in chosen.simulation.workers[4:]) <= small
    assert max(worker["allocated_bytes"] for worker in chosen.simulation.workers) > held
    assert chosen.simulated_ns["time"] < 0


def test_shares_that_are_no_faster_are_not_taken(problem):
    """On the shipped machine fetches over InfiniBand bound a step of this net."""
    chosen = search(problem, MIXED)
    assert round(chosen.simulation.step_seconds * 1e9) == min(chosen.simulated_ns.values())


def test_tiles_are_equal_where_they_must_be(problem):
    options = dataclasses.replace(MIXED, equal_tiles=True)
    assert search(problem, options).read().parts.are_equal


def test_devices_that_are_alike_have_the_plan_of_before(problem):
    options = dataclasses.replace(MIXED, machine="8xh100")
    chosen = search(problem, options)
    assert chosen.read().parts == tuple(chosen.plan.parts)
    assert not any("balanced" in name or BY_SPEED in name for name in chosen.simulated_ns)


def test_bounds_fall_on_the_multiples_that_a_machine_likes(tmp_path):
    document = json.loads(machine_text("8xh100"))
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({**document, "tile_multiple": 8}))
    problem = from_model("mlp", batch_size=500, optimizer="sgd", workers=3)
    plan = search(problem, SearchOptions(machine=str(path))).read()
    assert plan.parts.multiple == 8
    sizes = {
        bounds
        for tensor in plan.tensors
        for extent, each in zip(tensor.shape, tensor.bounds(plan.parts))
        if extent > 1000
        for _, bounds in each[:-1]
    }
    assert sizes and all(size % 8 == 0 for size in sizes)
    assert search(problem, SearchOptions(machine="8xh100")).read().parts.multiple == 1
    timed = search(problem, SearchOptions(machine=str(path), objective="time")).read()
    assert timed.parts.multiple == 8 and timed.predicted["step_ns"] > 0
