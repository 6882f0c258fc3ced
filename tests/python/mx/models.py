"""Symbols with their arrays, as they come from Gluon's tracing."""

import mxnet as mx
import numpy as np
from mxnet.gluon.model_zoo import vision

__all__ = ["convolutions", "lstm", "mlp", "random", "zoo"]


def random(shape, dtype="float32", seed=0):
    rng = np.random.RandomState(seed + sum(shape))
    return mx.nd.array(rng.uniform(-1, 1, shape), dtype=dtype)


def mlp(dtype="float32"):
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=16, name="fc1")
    net = mx.sym.Activation(net, act_type="tanh", name="act1")
    net = mx.sym.FullyConnected(net, num_hidden=8, no_bias=True, name="fc2")
    loss = mx.sym.pick(mx.sym.log_softmax(net), mx.sym.var("label"), axis=-1)
    symbol = mx.sym.mean(-loss, axis=0, exclude=True)
    inputs = {"data": random((6, 12), dtype), "label": mx.nd.array([0, 1, 2, 3, 4, 5])}
    shapes = {"fc1_weight": (16, 12), "fc1_bias": (16,), "fc2_weight": (8, 16)}
    parameters = {name: random(shape, dtype) for name, shape in shapes.items()}
    return symbol, inputs, parameters, {}


def convolutions(dtype="float32"):
    data = mx.sym.var("data")
    left = mx.sym.Convolution(data, num_filter=8, kernel=(3, 3), pad=(1, 1), name="left")
    right = mx.sym.Convolution(
        data, num_filter=8, kernel=(3, 3), pad=(1, 1), num_group=2, no_bias=True, name="right"
    )
    net = mx.sym.relu(mx.sym.concat(left, right, dim=1))
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.Pooling(net, kernel=(2, 2), pool_type="avg")
    shapes = {"left_weight": (8, 4, 3, 3), "left_bias": (8,), "right_weight": (8, 2, 3, 3)}
    parameters = {name: random(shape, dtype) for name, shape in shapes.items()}
    return mx.sym.flatten(net), {"data": random((3, 4, 8, 8), dtype)}, parameters, {}


def zoo(name, image, dtype="float32", **options):
    net = vision.get_model(name, classes=10, prefix="net_", **options)
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize()
    data = random(image, dtype)
    net(data)
    symbol = net(mx.sym.var("data"))
    parameters, aux = {}, {}
    for parameter in net.collect_params().values():
        kind = aux if parameter.grad_req == "null" else parameters
        kind[parameter.name] = parameter.data()
    return symbol, {"data": data}, parameters, aux


def lstm(steps=4, dtype="float32"):
    cell = mx.gluon.rnn.LSTMCell(8, input_size=6, prefix="lstm_")
    cell.initialize(mx.init.Uniform(0.5))
    cell.cast(dtype)
    outputs, _ = cell.unroll(steps, mx.sym.var("data"), layout="NTC", merge_outputs=True)
    parameters = {name: p.data() for name, p in cell.collect_params().items()}
    return outputs, {"data": random((5, steps, 6), dtype)}, parameters, {}
