"""Outputs of partitioned blocks stay tiles until the script reads them."""

import copy
import pickle

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon
from tofu.gluon.training import outputs

from .handing_on import CLASSES, batch, dense, gathers, gradients, label, softmax_loss
from .models import assert_same, data, make_net, plainly, started, told_lines, weights

# --- gathering -------------------------------------------------------------------------------


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
    lines = told_lines(capsys)
    assert lines == [
        "tofu: chain (19 blocks, 19 operators, 1.4 k parameters) over 2 workers cpu(0-1): "
        "19.0 KiB communicated per step, about 9.5 KiB on a worker (19.0 KiB serially), "
        "search 0.19 s, set up in 0.00 s"
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


# --- attributes of outputs -------------------------------------------------------------------


def test_what_is_known_without_gathering(two):
    with gathers() as found:
        out = dense()(batch())
        assert type(out) is type(out.detach()) is mx.nd.NDArray
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


def test_an_output_is_read_after_tofu_is_disabled():
    expected = dense()(batch()).asnumpy()
    tofu.gluon.enable(workers=2, device="cpu", log="quiet")
    mx.random.seed(1)
    out, dropped = dense()(batch()), dense()(batch())
    tofu.gluon.disable()
    assert outputs.is_divided(out)
    del dropped
    assert (out.shape, out.grad) == (expected.shape, None)
    np.testing.assert_allclose(out.asnumpy(), expected, rtol=1e-5)
    assert not outputs.is_divided(out)


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
    """Train with several outputs, of which a block takes some, or one twice."""
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


def test_inputs_that_cannot_be_cut_alike():
    """One is cut by rows, the other by columns; their product needs them cut alike."""
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
    """Train two blocks, of which the first is not recorded."""
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
