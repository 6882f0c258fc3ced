"""Runs within a memory limit: tofu.enable(memory=...), TOFU_MEMORY."""

import types
import warnings

import mxnet as mx
import pytest
from mxnet import autograd, gluon

import tofu.gluon
from tofu.errors import ConfigError, MemoryLimitError, PlanError
from tofu.gluon.blocks import memory_limits
from tofu.gluon.session import messages, session
from tofu.planner import decide
from tofu.planner.limits import fit_within, held_bytes
from tofu.planner.search import plan_graph
from tofu.planner.wish import Wish
from tofu.plans import SearchOptions
from tofu.plans import file as plan_file

from .models import assert_same, data, make_net, started, train
from .test_saved_plans import first_problem

MIB = 2**20


@pytest.fixture
def off():
    """Turn tofu off before and after."""
    tofu.gluon.disable()
    yield
    tofu.gluon.disable()


def on(memory, **wanted):
    tofu.gluon.enable(**{"workers": 2, "device": "cpu", "log": "quiet", **wanted}, memory=memory)


def wide(units=2048):
    """A net whose activations need most memory if the batch is large."""
    net = gluon.nn.HybridSequential(prefix=f"wide{units}_")
    with net.name_scope():
        net.add(gluon.nn.Dense(units, activation="relu", in_units=10))
        net.add(gluon.nn.Dense(6, in_units=units))
    return started(net)


def square():
    """A net whose plan holds more, and communicates less, with whole weights."""
    net = gluon.nn.HybridSequential(prefix="square_")
    with net.name_scope():
        net.add(gluon.nn.Dense(256, activation="relu", in_units=256))
        net.add(gluon.nn.Dense(64, in_units=256))
    return started(net)


def step(net, batch=96):
    """One training step; its loss."""
    inputs = mx.nd.ones((batch, net[0].weight.shape[1])) / 10
    with autograd.record():
        loss = net(inputs).square().mean()
    loss.backward()
    return loss.asscalar()


def footprints():
    return list(session.active().state.footprints.values())


def held(net, batch=96, **wanted):
    """The memory of the fullest worker under a limit that restricts nothing."""
    on("1TiB", **wanted)
    step(net(), batch)
    (found,) = footprints()
    tofu.gluon.disable()
    return held_bytes(found.plan)


def test_a_limit_lets_tensors_stay_whole_and_bounds_what_they_take(off):
    cut, whole = held(square, 512, allow_replication=False), held(square, 512)
    assert cut < whole
    expected = step(square(), 512)
    bytes_communicated = []
    for limit in (whole, whole - 1, cut):
        on(f"{limit}B")
        assert step(square(), 512) == pytest.approx(expected, rel=1e-5)
        (footprint,) = footprints()
        assert held_bytes(footprint.plan) <= limit
        assert footprint.plan.memory == "exact"
        bytes_communicated.append(footprint.plan.total_bytes)
        tofu.gluon.disable()
    assert bytes_communicated[0] < bytes_communicated[1] <= bytes_communicated[2]


def test_whole_tensors_may_take_a_share_more_than_cut_ones(off):
    cut = held(square, 512, allow_replication=False)
    bytes_communicated = []
    for share in (0, 20):
        on(None, allow_replication=f"{share}%")
        step(square(), 512)
        (footprint,) = footprints()
        assert held_bytes(footprint.plan) <= (1 + share / 100) * cut
        bytes_communicated.append(footprint.plan.total_bytes)
        tofu.gluon.disable()
    assert bytes_communicated[1] < bytes_communicated[0]


def test_the_limit_of_tiles_reaches_the_search(off, monkeypatch):
    def search_within(search, *args):
        with pytest.raises(PlanError, match="limit"):
            search(1)
        return fit_within(search, *args)

    monkeypatch.setattr(decide, "fit_within", search_within)
    on("1GiB")
    step(wide())
    assert len(footprints()) == 1


def test_results_are_those_of_a_serial_run(off):
    expected = train()
    on("1GiB")
    assert_same(train()[:2], expected[:2])


def test_what_does_not_fit_ends_the_run_and_says_what_takes_it(off):
    on("20KiB")
    net = wide()
    for _ in range(2):  # and never runs serially afterwards
        with pytest.raises(MemoryLimitError) as error:
            step(net)
    told = str(error.value)
    assert "wide2048: no plan over 2 workers was found that fits in 20.0 KiB; " in told
    assert "the least that one holds is " in told
    assert "gradients" in told and "Largest then: " in told
    assert "Use more workers, a smaller batch, or an optimizer with less state" in told


def test_a_block_that_cannot_be_partitioned_ends_the_run(off):
    on("1GiB")
    net = make_net()
    with pytest.raises(ConfigError, match=r"net_ cannot be .* as TOFU_MEMORY requires: it"):
        messages.check_serial("net_", "it is", session.active())
    with pytest.raises(ConfigError, match=r"not hybridized.*as TOFU_MEMORY requires; call it"):
        messages.check_eager("net_", "call it", session.active())
    assert net is not None


def test_blocks_share_the_limit(off):
    """A second block gets the memory that the first one leaves, and no program if it needs more."""
    alone = held(wide, allow_replication=False)
    on(f"{2 * alone + 4096}B", allow_replication=False)
    first, second = wide(), wide()
    step(first)
    step(second)
    assert len(footprints()) == 2
    tofu.gluon.disable()
    on(f"{2 * alone - 4096}B", allow_replication=False)
    first, second = wide(), wide()
    with autograd.record():
        waiting = first(data(96))  # for its backward pass
    with pytest.raises(MemoryLimitError, match=r"next to .* of other graphs"):
        step(second)
    waiting.backward()
    step(second)  # the first block's program makes room


def test_programs_that_nothing_waits_for_make_room(off):
    """Programs for two batch sizes of one net take turns if both do not fit at once."""
    on("1GiB", allow_replication=False)
    net = wide()
    step(net, 512)
    (large,) = footprints()
    step(net, 256)
    small = min(footprints(), key=lambda each: each.bound_bytes)
    both = large.kept_bytes + large.bound_bytes + small.bound_bytes
    for spare, expected in ((0, [1, 1]), (-1, [0, 1])):
        tofu.gluon.disable()
        on(f"{both + spare}B", allow_replication=False)
        net = wide()
        losses = [step(net, batch) for batch in (512, 256, 512, 256)]
        assert losses == pytest.approx([losses[0]] * 4)
        assert sorted(pool.bound for pool in session.active().state.footprints) == expected


def test_a_program_that_waits_for_its_backward_pass_stays(off):
    """A net called twice before backward needs two programs, which must both fit."""
    on("1GiB")
    net = wide()
    step(net, 512)
    (one,) = footprints()
    for spare, fits in ((4096, True), (-4096, False)):
        tofu.gluon.disable()
        on(f"{held_bytes(one.plan) + one.bound_bytes + spare}B")
        net = wide()
        inputs = mx.nd.ones((512, 10))
        with autograd.record():
            first = net(inputs).sum()
            if fits:
                (first + net(inputs).sum()).backward()
                continue
            with pytest.raises(MemoryLimitError, match="next to"):
                net(inputs)


def test_gradients_that_are_added_up_count_twice(off):
    on("1GiB")
    net = wide()
    step(net)
    (once,) = footprints()
    tofu.gluon.disable()
    on("1GiB")
    net = wide()
    net.collect_params().setattr("grad_req", "add")
    step(net)
    (twice,) = footprints()
    gradients = once.plan.bytes_per_worker["gradients"]
    assert held_bytes(twice.plan) == held_bytes(once.plan) + gradients


def test_a_saved_plan_must_fit(off, tmp_path):
    path = tmp_path / "net.plan"
    plan_file.save(path, plan_graph(first_problem(), SearchOptions()))
    expected = train()
    on("1MiB", plan=path)
    assert_same(train()[:2], expected[:2])
    tofu.gluon.disable()
    on("1KiB", plan=path)
    with pytest.raises(MemoryLimitError, match=r"fits in 1.0 KiB; the least"):
        train()


def test_limits_change_from_one_session_to_the_next(off, monkeypatch):
    monkeypatch.setenv("TOFU_MEMORY", "1MiB")
    on(None)
    assert session.active().wish.limit_bytes == MIB
    assert session.active().wish.options.allow_replication
    on("2 MiB", allow_replication=False)
    assert session.active().wish.limit_bytes == 2 * MIB
    assert not session.active().wish.options.allow_replication
    monkeypatch.delenv("TOFU_MEMORY")
    on(None)
    assert session.active().wish.limit_bytes is None
    train(steps=1)
    assert not footprints(), "without a limit nothing is predicted"
    with pytest.raises(ConfigError, match=r"tofu.enable: memory=12 pounds: expected a size"):
        on("12 pounds")


def test_what_gpus_have_is_a_limit_that_warns(off, monkeypatch):
    """The user has not limited memory, so a prediction must not end the run."""
    on(None)
    monkeypatch.setattr(memory_limits, "limit_of", lambda _: 1024)
    with warnings.catch_warnings(record=True) as seen:  # MXNet warns, too
        warnings.simplefilter("always")
        train(steps=2)
    told = [str(each.message) for each in seen if each.category is messages.TofuWarning]
    assert len(told) == 1
    assert "fits in 1.0 KiB; " in told[0] and "TOFU_MEMORY is not set" in told[0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 16),
        ({"objective": "time", "machine": "8xh100"}, 16),
        ({"machine": "4a100-4v100"}, 16),
        ({"objective": "time", "machine": "4a100-4v100"}, 80),
    ],
)
def test_the_smallest_gpu_limits_tiles_unless_they_fit_each(monkeypatch, options, expected):
    """If the search gives GPUs tiles by their memory, the largest GPU has the largest tiles."""
    sizes = [80, 16]
    monkeypatch.setattr(mx.context, "gpu_memory_info", lambda number: (0, sizes[number]))
    session = types.SimpleNamespace(
        wish=Wish(SearchOptions(**options)), contexts=[mx.gpu(0), mx.gpu(1)]
    )
    assert memory_limits.limit_of(session) == expected
