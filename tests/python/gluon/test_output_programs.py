"""Outputs that stay tiles, and the programs in whose memory they lie."""

import contextlib
import gc
import sys
import threading
import weakref

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.session import autograd_hooks
from tofu.gluon.session.session import active
from tofu.gluon.training import outputs

from . import test_faults
from .handing_on import batch, bound_of, dense, gathers, label, softmax_loss
from .models import assert_same, data, make_net, plain, plainly, started, wait_until, weights

# --- outputs that outlive their program's run ------------------------------------------------


def held():
    net = dense()
    first = net(batch())
    second = net(batch() * 2)
    third = net(batch() * 3)
    return [first, second, third, net(batch())]


def test_outputs_are_kept_when_their_program_runs_again(two):
    assert_same(held(), plainly(held))
    assert two.programs == 1


def late():
    """Read an output after its producer has run again."""
    net, loss_of = dense(), softmax_loss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    found, kept = [], None
    for factor in (1, 2, 3):
        with autograd.record():
            out = net(batch() * factor)
            loss = loss_of(out, label())
        loss.backward()
        trainer.step(12)
        if factor > 1:
            found.append(loss_of(kept, label()))
        kept = out
        found.append(net(batch() * factor))
    return [*found, kept]


def test_a_reader_that_comes_late(two):
    assert_same(late(), plainly(late))


class Identity(gluon.HybridBlock):
    """Returns a parameter and its input unchanged."""

    def __init__(self, **options):
        super().__init__(**options)
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(12, 8), init=mx.init.One())

    def hybrid_forward(self, F, x, weight):
        return x, weight, x * weight


def passed_on():
    net = started(Identity(prefix="identity_"))
    found = []
    for factor in (1, 2):
        found.append(net(batch() * factor))
        net.weight.set_data(net.weight.data() * 3)
    return found


def test_outputs_that_are_variables_do_not_change(two):
    """They do not change even when the parameter, or the program's input, does."""
    ones, inputs = np.ones((12, 8)), batch().asnumpy()
    for factor, (x, weight, product) in enumerate(passed_on(), 1):
        assert_same(x, inputs * factor)
        assert_same(weight, ones * 3 ** (factor - 1))
        assert_same(product, inputs * factor * 3 ** (factor - 1))


def test_outputs_outlive_disable(two):
    net = dense()
    expected = plainly(lambda: dense()(batch()).asnumpy())
    with autograd.record():
        out, other = net(batch()), net(batch())
    with plain():
        assert_same(out, expected)
    assert_same(other, expected)


def test_a_whole_output_holds_no_tiles(two):
    out = dense()(batch())
    memory = outputs.look(out).memory
    out.asnumpy()
    assert memory._tiles is None


def test_dropped_outputs_free_their_tiles(fake):
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    gc.disable()
    try:
        net = dense()
        out = net(batch())
        memory = weakref.ref(outputs.look(out).memory)
        del out
        wait_until(lambda: memory() is None)
        with autograd.record():
            out = net(batch())
            loss = softmax_loss()(out, label())
        memory = weakref.ref(outputs.look(out).memory)
        loss.backward()
        del out, loss
        wait_until(lambda: memory() is None)
    finally:
        gc.enable()
        tofu.gluon.disable()


def test_many_steps_keep_nothing(two):
    net, loss_of = make_net(), softmax_loss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    def kept():
        return len(autograd_hooks._functions) + sum(map(_is_ours, gc.get_objects()))

    for _ in range(8):
        with autograd.record():
            out = net(data())
            loss = loss_of(out, label())
        loss.backward()
        trainer.step(12)
        (out.argmax(axis=1) == label()).mean().asscalar()
        mx.nd.waitall()
        gc.collect()
        wait_until(lambda: kept() < 12, autograd_hooks.free_dropped)
    assert two.programs == 2


def _is_ours(value):
    return isinstance(value, (outputs.Memory, outputs.HeadGradient, outputs.Delivered))


# --- inputs bound to the outputs of other programs --------------------------------------------


def pairs(order):
    """One loss for two nets of the same size; the order in which they are used."""
    nets = {name: dense(prefix=f"{name}_") for name in "ab"}
    loss_of = softmax_loss()
    found = []
    for names in order.split():
        with autograd.record():
            outs = [nets[name](batch() * i) for i, name in enumerate(names, 1)]
            loss = sum(loss_of(out, label()) for out in outs)
        loss.backward()
        found += [loss, [nets[name].weight.grad().copy() for name in names]]
    return found, loss_of


@pytest.mark.parametrize(
    ("order", "losses", "programs"),
    [("a a a", 1, 2), ("ab ab ab", 2, 4), ("a b a b a", 1, 4), ("aa a b aa ab", 2, 7)],
)
def test_programs_are_bound_to_each_other(two, order, losses, programs):
    expected, _ = plainly(pairs, order)
    found, loss_of = pairs(order)
    assert_same(found, expected)
    assert len(bound_of(loss_of)) == losses
    assert two.programs == programs


def test_a_loss_reads_the_outputs_where_they_lie(two):
    net, loss_of = dense(), softmax_loss()
    for _ in range(3):
        with autograd.record():
            out = net(batch())
            arrays = outputs.value(outputs.look(out)).arrays
            loss_of(out, label()).backward()
    (bound,) = bound_of(loss_of)
    assert [a is b for a, b in zip(bound.links["data0"], arrays)] == [True, True]


def test_a_pair_whose_first_is_bound_again_becomes_one_again(two):
    net, loss_of = dense(), softmax_loss()
    for _ in range(2):
        with autograd.record():
            loss = loss_of(net(batch()), label())
        loss.backward()
        del loss
        found = [bound.links for bound in bound_of(loss_of)]
        assert [list(links) for links in found] == [["data0"]]
        for parameter in net.collect_params().values():
            parameter._tofu.generation += 1  # as cast() does


def unrolled():
    """A block that reads its own outputs, in one graph."""
    net = dense(8)
    found = []
    for _ in range(3):
        with autograd.record():
            state = batch()
            for _ in range(3):
                state = net(state)
        state.backward()
        found += [state, net.weight.grad().copy()]
    return found


def test_a_block_reads_its_own_outputs(two):
    assert_same(unrolled(), plainly(unrolled), rounded=True)
    assert two.programs == 3


# --- threads and faults ----------------------------------------------------------------------


def test_two_threads_read_one_output(two):
    expected = plainly(lambda: dense()(batch()).asnumpy())
    net = dense()

    def read(out, found):
        found.append(out.asnumpy())

    for _ in range(20):
        with autograd.record():
            out = net(batch())
        found = []
        threads = [threading.Thread(target=read, args=(out, found)) for _ in range(4)]
        with gathers() as gathered:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        assert gathered == [(12, 6)]
        assert_same(found, [expected] * 4)


def test_a_block_that_another_thread_runs_waits(two):
    """Its input must not be overwritten between the check and the read."""
    net = dense()
    net(batch())
    done = threading.Event()

    def run():
        net(batch())
        done.set()

    with active().state.running:
        thread = threading.Thread(target=run)
        thread.start()
        assert not done.wait(0.3)
    thread.join(30)
    assert done.is_set()


def recorded_pair():
    net, loss_of = dense(), softmax_loss()
    with autograd.record():
        out = net(batch())
        loss = loss_of(out, label())
    return net, loss_of, outputs.look(out).gradient, loss


def test_what_an_interrupted_call_leaves_is_forgotten(two):
    net, _, gradient, loss = recorded_pair()
    gradient.add(0, mx.nd.ones((12, 6)))
    loss.backward()
    with plain():
        expected, loss_of = dense(), softmax_loss()
        with autograd.record():
            loss = loss_of(expected(batch()), label())
        loss.backward()
    assert_same(net.weight.grad(), expected.weight.grad())


def test_gradients_on_their_way_keep_their_program(two):
    _, loss_of, gradient, loss = recorded_pair()
    loss.backward()
    (bound,) = bound_of(loss_of)
    assert bound.free()
    gradient.add(0, mx.nd.ones((12, 6)))
    assert not bound.free()


def test_gradients_keep_their_program_until_they_are_read(two, monkeypatch):
    """Another thread that ran the loss's program before then would overwrite them."""
    net, loss_of, _, loss = recorded_pair()
    (of_loss,), (of_net,) = bound_of(loss_of), bound_of(net)
    kind, was_free = type(of_net.program), {}
    backward = kind.backward

    def watched(program, *args, **options):
        was_free[program] = of_loss.free()
        return backward(program, *args, **options)

    monkeypatch.setattr(kind, "backward", watched)
    loss.backward()
    assert was_free == {of_loss.program: False, of_net.program: False}
    assert of_loss.free()
    assert of_net.free()


class ThrowingLoss(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.Custom(x, op_type="tofu_test_throwing").mean(axis=1)


def steps_with_a_fault(where, retain=False):
    """Losses, weights and errors of training steps; in one, the loss throws."""
    net, loss_of = dense(8, "thrower_"), ThrowingLoss()
    loss_of.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    losses, errors = [], []
    for number in range(4):
        if number == 2:
            if where is None:
                continue
            test_faults.switched_on.add(where)
        try:
            with autograd.record():
                loss = loss_of(net(batch()))
            loss.backward(retain_graph=retain)
            trainer.step(12)
            losses.append(loss.asnumpy())
            mx.nd.waitall()
        except mx.MXNetError as error:
            errors.append((number, str(error)))
        test_faults.switched_on.clear()
    return [losses, weights(net)], errors


@pytest.mark.filterwarnings("ignore:.*no description of Custom")
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_fault_in_a_reader_is_one_error(where, retain):
    expected, _ = steps_with_a_fault(None)
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    found, errors = steps_with_a_fault(where, retain)
    tofu.gluon.disable()
    assert [number for number, _ in errors] == [2]
    assert "tofu: thrown by operator Custom" in errors[0][1]
    losses = found[0]
    assert_same([losses[:2] + losses[-1:], found[1]], expected)


# --- random numbers --------------------------------------------------------------------------


def dropped():
    """The outputs of a net with Dropout in four steps from one seed."""
    net = nn.HybridSequential(prefix="random_")
    with net.name_scope():
        net.add(nn.Dense(16, in_units=8), nn.Dropout(0.5), nn.Dense(12, in_units=16))
        net.add(nn.Dropout(0.3))
    started(net)
    mx.random.seed(11)
    found = []
    for _ in range(4):
        with autograd.record():
            out = net(batch())
            loss = (out**2).sum()
        loss.backward()
        found += [out.asnumpy(), net[0].weight.grad().asnumpy()]
    return found


@pytest.mark.parametrize("count", [2, 4])
def test_masks_follow_from_the_seed_and_the_number_of_workers(count):
    tofu.gluon.enable(workers=count, device="cpu", log="quiet")
    one, other = dropped(), dropped()
    tofu.gluon.disable()
    assert len(one) == len(other)
    for first, second in zip(one, other):
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(one[0], one[2])
    assert 0.1 < (one[0] == 0).mean() < 0.6


# --- interrupts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [False, True])  # when a program runs; when a reader is recorded
def test_an_interrupt_leaves_recording_as_it_was(two, monkeypatch, turned):
    def interrupted(recording, real=autograd.set_recording):
        before = real(recording)
        if recording == turned:
            monkeypatch.undo()
            raise KeyboardInterrupt
        return before

    net = dense()
    with autograd.record():
        out = net(batch())
    with autograd.pause() if turned else autograd.record():
        monkeypatch.setattr(autograd, "set_recording", interrupted)
        with pytest.raises(KeyboardInterrupt):
            out.backward() if turned else net(batch())
        assert autograd.is_recording() == (not turned)


def test_an_interrupt_as_recording_is_put_back_leaves_it_off(two):
    net = dense()
    for at in range(1, 400):
        with autograd.record():
            out = net(batch())
        begun = 0

        def interrupt(frame, event, _, at=at):
            nonlocal begun
            if event == "call" and frame.f_code.co_name == "set_recording":
                begun += 1
                if begun == at:
                    sys.setprofile(None)
                    raise KeyboardInterrupt

        sys.setprofile(interrupt)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                out.backward()
        finally:
            sys.setprofile(None)
        assert not autograd.is_recording(), f"interrupted in call {at}"
        if begun < at:
            return
    raise AssertionError("backward calls set_recording without end")
