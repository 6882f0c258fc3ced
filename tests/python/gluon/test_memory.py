"""Objects that a script drops are freed at once, without Python's cycle collector."""

import copy
import ctypes
import gc
import os
import pickle
import statistics
import weakref
from pathlib import Path

import mxnet as mx
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

from tofu.gluon.session import autograd_hooks
from tofu.gluon.session.session import active

from ..support import forked
from .models import assert_same, data, make_net, train, wait_until


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def programs():
    """Weak references to the programs of all blocks."""
    return [
        weakref.ref(bound.program)
        for block in active().state.blocks.values()
        for pool in block._pools.values()
        for bound in pool._bound
    ]


def once(backward, trained=False):
    """Use a net, drop it, and return its programs."""
    net, inputs = make_net(), data()
    inputs.attach_grad()
    if trained:
        train(net=net, steps=2)
    with autograd.record():
        loss = (net(inputs) * net(inputs * 2)).sum()
    if backward:
        loss.backward()
    mx.nd.waitall()
    return programs()


def all_freed(dropped):
    return lambda: not any(program() for program in dropped)


@pytest.mark.parametrize("backward", [False, True])
def test_a_dropped_block_is_freed(two, backward, without_collector):
    for _ in range(3):
        dropped = once(backward)
        assert dropped
        data().sum()
        wait_until(all_freed(dropped), autograd_hooks.free_dropped)
        assert not list(active().state.blocks)


def test_calls_steps_and_records_free_what_was_dropped(two, without_collector):
    kept = make_net(prefix="kept_")
    kept(data())
    own = programs()
    dropped = [program for program in once(backward=True) if program not in own]
    wait_until(all_freed(dropped), lambda: kept(data()))
    assert len(programs()) == 1


def test_blocks_with_trainers_are_freed_as_in_mxnet(two):
    """A parameter and its trainer refer to each other, so this takes the cycle collector."""

    def collect_dropped():
        autograd_hooks.free_dropped()
        gc.collect()

    dropped = once(backward=True, trained=True)
    wait_until(all_freed(dropped), collect_dropped)
    assert not list(active().state.trainers)


def test_old_signatures_are_freed(two, without_collector):
    net = make_net()
    for rows in range(2, 90, 2):
        with autograd.record():
            loss = net(mx.nd.ones((rows, 10))).sum()
        loss.backward()
    del loss
    wait_until(lambda: len(programs()) <= 32, autograd_hooks.free_dropped)
    assert len(programs()) == 32


def test_a_recording_that_is_over_keeps_no_program(two, without_collector):
    """An output that the script still holds keeps only its own memory, as in MXNet."""
    net, inputs = make_net(), data()
    inputs.attach_grad()
    with autograd.record():
        out = net(inputs)
        loss = out.sum()
    loss.backward(retain_graph=True)
    used = programs()
    net.hybridize()
    net(inputs)  # the block drops the programs of its former graph
    assert used and not any(each() is None for each in used)
    loss.backward()
    wait_until(all_freed(used), active().state.calls.free)
    assert out.shape == (12, 6)


def test_the_trial_of_a_trace_uses_the_program_of_the_recorded_call(two):
    net, inputs = make_net(hybrid=False), data()
    inputs.attach_grad()
    with autograd.record():
        loss = net(inputs).sum()
    loss.backward()
    (known,) = active().state.traces.values()
    (trace,) = known.traces
    (pool,) = trace.partitioned._pools.values()
    assert len(pool._bound) == 1


def test_scopes_still_name_children(two):
    net = make_net()
    net(data())
    with net.name_scope():
        added = nn.Dense(3)
    assert added.prefix == "net_dense2_"
    assert added.params._shared is net.params._shared


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_of_scopes_are_mxnets_own(two, duplicate):
    net = nn.Dense(4, in_units=10, prefix="net_")
    net.initialize()
    net.hybridize()
    net(data())
    assert type(net._scope).__name__ == "_Scope"
    state = {"block": net, "scope": net._scope}
    net._cached_op = net._cached_graph = None  # not to be copied
    net._clear_cached_op()
    twin = duplicate(state)
    assert type(twin["scope"]) is gluon.block._BlockScope
    assert twin["scope"]._block is twin["block"]
    assert twin["block"] is not net


def bytes_in_use(what, warm, samples, each):
    """The memory in use at each sample of a process that repeats an action."""
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        pytest.skip("needs mallinfo2, of glibc 2.33 or later")
    variables = {"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": "2", "OMP_NUM_THREADS": "1"}
    counts = ("--warm", warm, "--samples", samples, "--each", each)
    found = forked.run(
        [Path(__file__).parent / "flat.py", what, *counts],
        env={**os.environ, **variables, "TOFU_DEVICE": "cpu", "TOFU_LOG": "quiet"},
        timeout=1200,
    )
    assert found.returncode == 0, found.stderr
    return [int(number) for number in found.stdout.split()]


@pytest.mark.parametrize(
    ("what", "warm", "samples", "each", "limit"),
    [("creations", 6, 3, 6, 10 * 2**10), ("steps", 34, 3, 8, 10 * 2**10)],
)
def test_memory_stays_flat(what, warm, samples, each, limit):
    """Memory grows less per creation, or step, than one takes; tables may grow once."""
    for _ in range(3):  # threads may hold some memory at a sample; a leak shows every time
        found = bytes_in_use(what, warm, samples, each)
        growth = [after - before for before, after in zip(found, found[1:])]
        if statistics.median(growth) / each < limit:
            return
    pytest.fail(f"bytes in use at each sample: {found}")


@pytest.mark.slow
@pytest.mark.whole(rotates=False)
@pytest.mark.parametrize(("what", "warm", "count"), [("creations", 30, 300), ("steps", 70, 2000)])
def test_memory_stays_within_one_percent(what, warm, count):
    found = bytes_in_use(what, warm, 10, count // 10)
    assert max(found) < 1.01 * found[0], found


def test_training_is_not_disturbed(two):
    losses = train()[0]
    once(backward=True)
    assert_same(train()[0], losses)
