"""The recorder keeps a script's results in order and precision, whole or partitioned."""

from __future__ import annotations

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

from tofu.verify.script import record


def train(steps, recorder, *, update=False):
    """Train a net with Dropout until the recorder ends it."""
    mx.random.seed(2)
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(4), gluon.nn.Dropout(0.5), gluon.nn.Dense(3))
    net.initialize()
    net[0].bias.grad_req = "null"
    loss_of = gluon.loss.L2Loss(prefix="loss_")
    trainer = gluon.Trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1}, update_on_kvstore=False
    )
    data = mx.nd.arange(10).reshape((2, 5))
    restore = recorder.patch()
    try:
        for _ in range(steps):
            with autograd.record():
                loss = loss_of(net(data), mx.nd.ones((2, 3)))
            loss.backward()
            if update:
                trainer.allreduce_grads()
                trainer.update(2)
            else:
                trainer.step(2)
        net(data)
    finally:
        restore()


@pytest.mark.parametrize("update", [False, True])
def test_outputs_gradients_and_weights_are_recorded(update):
    recorder = record.Recorder(2, "float32")
    with pytest.raises(record._Ended):
        train(5, recorder, update=update)
    keys = list(recorder.arrays)
    names = ("net_dense0_weight", "net_dense1_weight", "net_dense1_bias")
    assert keys[:2] == ["1/output/net_[0] call 1", "1/output/loss_[0] call 2"] or (
        [key.split("/")[1] for key in keys[:2]] == ["output", "output"]
    )
    assert set(keys[2:5]) == {f"1/gradient/{name}" for name in names}
    assert set(keys[5:8]) == {f"1/weight/{name}" for name in names}
    assert [key.split("/")[0] for key in keys] == ["1"] * 8 + ["2"] * 8
    assert not np.array_equal(
        recorder.arrays["1/weight/net_dense1_bias"], recorder.arrays["2/weight/net_dense1_bias"]
    )


def test_float64_converts_blocks_and_inputs():
    recorder = record.Recorder(1, "float64")
    with pytest.raises(record._Ended):
        train(1, recorder)
    assert {array.dtype for array in recorder.arrays.values()} == {np.dtype("float64")}


@pytest.mark.parametrize("dtype", ["float32", "float32~", "float64"])
@pytest.mark.filterwarnings("ignore:.*csr_matrix:DeprecationWarning")  # of NDArrayIter
def test_steps_of_a_module_are_recorded(dtype):
    recorder = record.Recorder(2, dtype)
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), fixed_param_names=["fc_bias"])
    batches = mx.io.NDArrayIter(np.arange(20).reshape(4, 5) / 7, np.arange(4) % 3, 2)
    restore = recorder.patch()
    try:
        with pytest.raises(record._Ended):
            module.fit(batches, num_epoch=3)
    finally:
        restore()
    kinds = ["output/softmax_output call 1", "gradient/fc_weight", "weight/fc_weight"]
    assert list(recorder.arrays) == [f"{step}/{kind}" for step in (1, 2) for kind in kinds]
    wide = np.dtype(dtype.rstrip(record.ROUNDED))
    assert {array.dtype for array in recorder.arrays.values()} == {wide}


def test_lower_recurrent_layers_have_gradients_in_float64():
    """MXNet leaves them undefined if nothing needs the gradient of the data."""

    def step(net, trainer, data):
        with autograd.record():
            loss = (net(data) ** 2).sum()
        loss.backward()
        trainer.step(1)

    gradients = []
    for dtype in ("float32", "float64"):
        mx.random.seed(2)
        net = gluon.nn.HybridSequential(prefix="net_")
        with net.name_scope():
            net.add(gluon.rnn.LSTM(6, 2, input_size=5), gluon.nn.Dense(3, in_units=18))
        net.initialize(mx.init.Xavier(magnitude=24))
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd")
        recorder = record.Recorder(1, dtype)
        restore = recorder.patch()
        try:
            with pytest.raises(record._Ended):
                step(net, trainer, mx.nd.random.normal(shape=(4, 3, 5)))
        finally:
            restore()
        gradients.append(recorder.arrays["1/gradient/net_lstm0_l0_h2h_weight"])
    np.testing.assert_allclose(*gradients, rtol=1e-3, atol=1e-6)
    assert np.abs(gradients[0]).max() > 1e-4


def test_dropout_keeps_every_value():
    found = []
    for _ in range(2):
        recorder = record.Recorder(1, "float32")
        with pytest.raises(record._Ended):
            train(1, recorder)
        found.append(next(iter(recorder.arrays.values())))
        mx.random.seed(99)
    np.testing.assert_array_equal(*found)


def test_everything_is_put_back():
    seams = (gluon.Block, "__call__"), (gluon.Trainer, "step"), (gluon.Trainer, "update")
    before = [getattr(owner, name) for owner, name in seams]
    recorder = record.Recorder(9, "float32")
    train(1, recorder)
    assert [getattr(owner, name) for owner, name in seams] == before
    assert len(recorder.arrays) == 8  # the prediction afterwards is not recorded


def test_inputs_change_by_one_rounding_unless_they_are_whole_numbers():
    data = mx.nd.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    old, new = data.asnumpy(), record.rounded(data).asnumpy()
    up = np.nextafter(old, np.float32(np.inf))
    assert ((new == old) | (new == up)).all() and (new == old).any() and (new == up).any()
    labels, double = mx.nd.arange(8), data.astype("float64")
    assert record.rounded(labels) is labels
    assert record.rounded(double) is double
    data.attach_grad()
    assert record.rounded(data) is data  # else its gradient would be another array's
