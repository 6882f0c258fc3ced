"""Outputs of partitioned blocks stay tiles until the script reads them."""

import contextlib
import copy
import gc
import pickle
import threading
import weakref
from unittest import mock

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon import outputs
from tofu.gluon.session import active

from . import test_faults
from .models import assert_same, data, make_net, plain, plainly, started, weights

CLASSES = 6


@contextlib.contextmanager
def gathers():
    """The shapes of the outputs that are gathered meanwhile."""
    found = []
    original = outputs.Memory.gather

    def gather(memory):
        if memory._whole is None:
            found.append(tuple(memory.layout.shape))
        return original(memory)

    with mock.patch.object(outputs.Memory, "gather", gather):
        yield found


def label(rows=12):
    return mx.nd.array(np.arange(rows) % CLASSES)


def dense(units=CLASSES, prefix="dense_", **options):
    return started(nn.Dense(units, in_units=8, prefix=prefix, **options))


def batch(rows=12, columns=8):
    return mx.nd.array(np.random.RandomState(3).uniform(-1, 1, (rows, columns)))


def softmax_loss():
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    loss.hybridize()
    return loss


def gradients(*blocks):
    return [
        p.grad()
        for block in blocks
        for p in block.collect_params().values()
        if p.grad_req != "null"
    ]


# --- what is gathered ------------------------------------------------------------------------


def test_a_loss_takes_tiles(workers):
    net, loss_of = make_net(), softmax_loss()
    with gathers() as found:
        with autograd.record():
            out = net(data())
            loss = loss_of(out, label())
        loss.backward()
        loss.asnumpy()
    assert found == [(12,)]
    assert outputs.is_divided(out)


def chain(length, hybrid=True):
    net = nn.Sequential(prefix="chain_")
    with net.name_scope():
        for i in range(length):
            net.add(nn.Dense(8, in_units=8) if i % 2 == 0 else nn.Activation("tanh"))
    mx.random.seed(7)
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize()
    return net


CHAIN = pytest.mark.filterwarnings("ignore:All children of this Sequential")


def train_chain(length):
    net = chain(length)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    losses = []
    for _ in range(3):
        with autograd.record():
            out = net(batch())
            loss = (out**2).sum()
        loss.backward()
        trainer.step(12)
        losses += [loss, out]
    return losses, weights(net)


@CHAIN
def test_a_chain_of_blocks_gathers_only_its_end(two):
    with gathers() as found:
        result = train_chain(7)
    assert found == [(12, 8)] * 3
    assert_same(result, plainly(train_chain, 7))


@CHAIN
def test_a_chain_of_blocks_is_one_line(fake, capsys):
    tofu.gluon.enable(workers=2, device="cpu")
    chain(38)(batch())
    tofu.gluon.disable()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("tofu:")]
    assert lines == [
        "tofu: chain (19 blocks, 19 operators, 1.4 k parameters) over 2 workers cpu(0-1): "
        "19.0 KiB communicated per step, search 0.19 s"
    ]


def test_a_block_inside_another_keeps_its_name(fake, capsys):
    class Outer(gluon.Block):
        def __init__(self, inner):
            super().__init__(prefix="outer_")
            self.inner = inner

        def forward(self, x):
            return self.inner(x) * 2

    tofu.gluon.enable(workers=2, device="cpu")
    Outer(dense(prefix="inner_"))(batch())
    tofu.gluon.disable()
    assert "tofu: inner (1 operators" in capsys.readouterr().err


def test_the_log_names_what_is_gathered(fake, capsys):
    tofu.gluon.enable(workers=2, device="cpu", log="debug")
    net = dense()
    for _ in range(2):
        net(batch()).asnumpy()
    tofu.gluon.disable()
    lines = [line for line in capsys.readouterr().err.splitlines() if "gathered" in line]
    assert lines == [
        "tofu: dense: output 0 (12x6 of float32, 288 bytes) is gathered, as the script reads it"
    ]


# --- what an output says of itself -----------------------------------------------------------


def test_what_is_known_without_gathering(two):
    with gathers() as found:
        out = dense()(batch())
        assert isinstance(out, mx.nd.NDArray)
        assert (out.shape, out.ndim, out.size, len(out)) == ((12, 6), 2, 72, 12)
        assert (out.dtype, out.stype) == (np.float32, "default")
        assert out.context == out.ctx == mx.cpu()
        assert out.as_in_context(mx.cpu()) is out
        assert out.grad is None
        out.wait_to_read()
        out.detach().wait_to_read()
        mx.nd.waitall()
    assert found == []
    assert outputs.is_divided(out)


def test_an_output_that_was_read_is_a_plain_array(two):
    out = dense()(batch())
    value = out.asnumpy()
    assert type(out) is mx.nd.NDArray
    with gathers() as found:
        np.testing.assert_array_equal(out.asnumpy(), value)
    assert found == []
    out[:] = 3
    assert (out.asnumpy() == 3).all()


READERS = {
    "asnumpy": lambda out: out.asnumpy(),
    "operator": lambda out: out + 1,
    "slice": lambda out: out[2:5],
    "element": lambda out: out[1, 2],
    "method": lambda out: out.reshape((-1,)),
    "repr": repr,
    "iterate": lambda out: list(out),
    "copy": lambda out: out.copyto(mx.cpu(1)),
    "deepcopy": copy.deepcopy,
    "pickle": lambda out: pickle.loads(pickle.dumps(out)),
    "dlpack": lambda out: mx.nd.from_dlpack(out.to_dlpack_for_read()).copy(),
    "in place": lambda out: out.__iadd__(1),
    "written": lambda out: (out.__setitem__(slice(1, 3), 5), out)[1],
    "out=": lambda out: mx.nd.ones((12, 6), out=out),
    "metric": lambda out: mx.metric.Accuracy().update(label(), out),
    "np": lambda out: out.as_np_ndarray().asnumpy(),
    "detached": lambda out: out.detach() * 2,
}


@pytest.mark.parametrize("reader", READERS)
def test_whatever_reads_it_gets_the_value(two, reader):
    def read():
        out = dense()(batch())
        result = READERS[reader](out)
        return [result if not isinstance(result, str) else [], out]

    found, expected = read(), plainly(read)
    if reader == "metric":
        found[0], expected[0] = [], []
    if reader == "np":
        found[0], expected[0] = mx.nd.array(found[0]), mx.nd.array(expected[0])
    assert_same(found, expected)


def test_repr_shows_an_ndarray(two):
    assert "<NDArray 12x6 @cpu(0)>" in repr(dense()(batch()))


def test_saving_an_output(two, tmp_path):
    out = dense()(batch())
    mx.nd.save(str(tmp_path / "out"), out)
    (found,) = mx.nd.load(str(tmp_path / "out"))
    assert_same(found, out)


def test_detached_arrays_share_memory_as_in_mxnet(two):
    out = dense()(batch())
    detached = out.detach()
    out[:] = 4
    assert (detached.asnumpy() == 4).all()


# --- gradients -------------------------------------------------------------------------------


def read_and_hand_on(order):
    """An output that the script reads and a loss takes, in either order."""
    net, loss_of = make_net(), softmax_loss()
    with autograd.record():
        out = net(data())
        total = 0
        for what in order:
            if what == "read":
                total = total + (out**2).mean()
            elif what == "loss":
                total = total + loss_of(out, label()).sum()
            elif what == "detached":
                total = total + loss_of(out.detach(), label()).sum()
            elif what == "print":
                out.asnumpy()
    total.backward()
    return [total, out, gradients(net)]


@pytest.mark.parametrize(
    "order",
    [
        ("loss", "read"),
        ("read", "loss"),
        ("loss", "loss"),
        ("loss", "print", "loss"),
        ("loss", "loss", "loss", "read"),
        ("loss", "detached"),
    ],
    ids="-".join,
)
def test_gradients_of_several_readers_add_up(two, order):
    assert_same(read_and_hand_on(order), plainly(read_and_hand_on, order), rounded=True)


class Branches(gluon.HybridBlock):
    """Three outputs."""

    def __init__(self, **options):
        super().__init__(**options)
        with self.name_scope():
            self.body = nn.Dense(12, in_units=12)

    def hybrid_forward(self, F, x):
        y = self.body(x)
        return y, F.tanh(y), x * 2


class Join(gluon.HybridBlock):
    def hybrid_forward(self, F, x, y):
        return x * F.sigmoid(y)


def branches(use):
    """Several outputs, of which a block takes some, or one twice."""
    net, join = started(Branches(prefix="b_")), Join()
    join.hybridize()
    inputs = batch(12, 12)
    inputs.attach_grad()
    found = []
    for _ in range(2):
        with autograd.record():
            one, other, twice = net(inputs)
            arrays = {"one": one, "other": other, "twice": twice}
            loss = join(*(arrays[name] for name in use)).sum()
        loss.backward()
        found += [loss.copy(), gradients(net), inputs.grad.copy()]
    return [*found, one, other, twice]


@pytest.mark.parametrize(
    "use",
    [("one", "other"), ("other", "other"), ("twice", "one"), ("other", "twice")],
    ids="-".join,
)
def test_blocks_with_several_outputs(workers, use):
    assert_same(branches(use), plainly(branches, use), rounded=True)


def joined():
    one, other = dense(8, "one_"), dense(8, "other_")
    join = Join()
    join.hybridize()
    with autograd.record():
        loss = join(one(batch()), other(batch() * 2)).sum()
    loss.backward()
    return [loss, gradients(one, other)]


@pytest.mark.filterwarnings("ignore:.*has no tensor")
def test_inputs_that_cannot_be_cut_alike():
    """One comes in rows, the other in columns; the product of both needs them alike."""
    expected = joined()
    tofu.gluon.enable(workers=2, device="cpu", log="quiet", pins={"one_fwd": 0, "other_fwd": 1})
    found = joined()
    tofu.gluon.disable()
    assert_same(found, expected)


def retain():
    net, loss_of = make_net(), softmax_loss()
    with autograd.record():
        out = net(data())
        loss = loss_of(out, label())
    found = []
    for factor in (1, 2, 3):
        loss.backward(mx.nd.ones_like(loss) * factor, retain_graph=factor < 3)
        found += [g.copy() for g in gradients(net)]
    return [*found, out]


def test_retained_graphs(two):
    assert_same(retain(), plainly(retain))


def separate_graphs():
    """Two losses of one output, each with a backward call of its own."""
    net, loss_of = make_net(), softmax_loss()
    with autograd.record():
        out = net(data())
        one, other = loss_of(out, label()), loss_of(out, label() * 0)
    one.backward(retain_graph=True)
    found = [g.copy() for g in gradients(net)]
    other.backward()
    return found, gradients(net)


def test_two_losses_of_one_output(two):
    assert_same(separate_graphs(), plainly(separate_graphs))


def read_after_record():
    """The first look at an output after recording has ended, and after backward."""
    net = dense()
    with autograd.record():
        out, later = net(batch()), net(batch() * 2)
    (out * 3).sum().backward()
    before = net.weight.grad().copy()
    out.backward(retain_graph=True)
    after = net.weight.grad().copy()
    later.backward()
    return [before, after, net.weight.grad(), later, later + 1]


def test_reading_after_recording(two):
    def run():
        net = dense()
        with autograd.record():
            out = net(batch())
        out.backward()
        return [net.weight.grad(), out, out + 1]

    assert_same(run(), plainly(run))


def states(detach):
    """A recurrent net whose state goes from batch to batch."""
    cell = started(gluon.rnn.LSTM(8, input_size=8, prefix="lstm_"))
    state = cell.begin_state(4)
    trainer = gluon.Trainer(cell.collect_params(), "sgd", {"learning_rate": 0.1})
    found = []
    for step in range(4):
        with autograd.record():
            if detach:
                state = [each.detach() for each in state]
            out, state = cell(batch(12).reshape((3, 4, 8)) * (step + 1), state)
            loss = (out**2).sum()
        loss.backward()
        trainer.step(4)
        found.append(loss)
    return found, state, weights(cell)


@pytest.mark.parametrize("detach", [True, False])
def test_states_between_batches(two, detach):
    assert_same(states(detach), plainly(states, detach), rounded=True)


def test_states_are_not_gathered(two):
    with gathers() as found:
        states(detach=True)
    assert {shape for shape in found if len(shape) == 3 and shape[0] == 1} == set()
    assert two.programs == 1


def attach():
    """An output that becomes a variable of its own."""
    net, loss_of = make_net(), softmax_loss()
    out = net(data())
    out.attach_grad()
    with autograd.record():
        loss = loss_of(out, label())
    loss.backward()
    return [out.grad, loss]


def test_an_output_with_a_gradient_of_its_own(two):
    assert_same(attach(), plainly(attach))


def test_a_block_without_parameters_runs_serially_on_whole_arrays(two):
    loss_of = softmax_loss()
    loss_of(data()[:, :CLASSES], label()).asnumpy()
    assert two.graphs == []


def features():
    """The first of two blocks is not recorded."""
    first, second = dense(8, "first_"), dense(prefix="second_")
    loss_of = softmax_loss()
    found = []
    for factor in (1, 2):
        features = first(batch() * factor)
        with autograd.record():
            loss = loss_of(second(features), label())
        first(batch() * -5)  # before the backward pass of what has read the features
        loss.backward()
        found += [loss, [g.copy() for g in gradients(second)]]
    return found


def test_the_producer_runs_again_before_its_reader_goes_backward(two):
    assert_same(features(), plainly(features))


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
    """A reader that takes an output after its producer has run again."""
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
    """Returns a parameter and its input as they are."""

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
    """Not even when the parameter does, or the program's memory of its input."""
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
        assert memory() is None
        with autograd.record():
            out = net(batch())
            loss = softmax_loss()(out, label())
        memory = weakref.ref(outputs.look(out).memory)
        loss.backward()
        del out, loss
        assert memory() is None
    finally:
        gc.enable()
        tofu.gluon.disable()


def test_many_steps_keep_nothing(two):
    net, loss_of = make_net(), softmax_loss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    counts = []
    for _ in range(8):
        with autograd.record():
            out = net(data())
            loss = loss_of(out, label())
        loss.backward()
        trainer.step(12)
        (out.argmax(axis=1) == label()).mean().asscalar()
        mx.nd.waitall()
        gc.collect()
        counts.append(
            (len(tofu.gluon.autograd_hooks._functions), sum(map(_is_ours, gc.get_objects())))
        )
    assert max(map(sum, counts)) < 8
    assert two.programs == 2


def _is_ours(value):
    return isinstance(value, (outputs.Memory, outputs.HeadGradient, outputs.Delivered))


# --- inputs bound to the outputs of other programs --------------------------------------------


def bound_of(block):
    pools = active().state.blocks[block]._pools.values()
    return [bound for pool in pools for bound in pool._bound]


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
    """What it reads must not be overwritten between the look at it and the read."""
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
