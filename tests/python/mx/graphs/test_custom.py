"""Operators written in Python, in training graphs."""

import mxnet as mx
import numpy as np
import pytest

from tofu.errors import GraphError

from ..models import random
from ..whole import graph_of, own_gradients, train


class SumAndProduct(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        x, y = in_data
        self.assign(out_data[0], req[0], x + y)
        self.assign(out_data[1], req[1], x * y)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        (of_sum, of_product), (x, y) = out_grad, in_data
        self.assign(in_grad[0], req[0], of_sum + of_product * y)
        self.assign(in_grad[1], req[1], of_sum + of_product * x)


class Prop(mx.operator.CustomOpProp):
    reads_inputs = (0, 1)

    def list_arguments(self):
        return ["x", "y"]

    def list_outputs(self):
        return ["sum", "product"]

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]] * 2, []

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        return [*out_grad, *(in_data[k] for k in self.reads_inputs)]

    def create_operator(self, ctx, shapes, dtypes):
        return SumAndProduct()


def registered(*reads_inputs):
    name = f"test_reads_{'_'.join(map(str, reads_inputs))}"
    mx.operator.register(name)(type(name, (Prop,), {"reads_inputs": reads_inputs}))
    return mx.sym.Custom(mx.sym.var("x"), mx.sym.var("y"), op_type=name, name="custom")


PARAMETERS = {"x": random((3, 4)), "y": random((3, 4), seed=1)}


@pytest.mark.parametrize("reads", [(), (0,), (1,)])
def test_a_gradient_that_does_not_read_every_input_is_refused(reads):
    with pytest.raises(GraphError, match="does not read all of its inputs"):
        graph_of(registered(*reads), {}, PARAMETERS)


@pytest.mark.parametrize("used", [0, 1])
def test_the_gradient_of_an_output_that_nothing_reads_is_zeros(used):
    symbol = registered(0, 1)[used] * 2
    _, own, _ = own_gradients(symbol, {}, PARAMETERS)
    _, found, _ = train(symbol, {}, PARAMETERS)
    assert found.keys() == own.keys() == PARAMETERS.keys()
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, own[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("used", [0, 1])
def test_an_input_may_be_zeros(used):
    name = registered(0, 1).attr("op_type")
    symbol = mx.sym.Custom(mx.sym.var("x"), mx.sym.zeros((3, 4)), op_type=name)[used] * 2
    parameters = {"x": PARAMETERS["x"]}
    _, own, _ = own_gradients(symbol, {}, parameters)
    _, found, _ = train(symbol, {}, parameters)
    np.testing.assert_allclose(found["x"], own["x"], rtol=1e-6)


class Weighted(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        weights, x = in_data
        self.assign(out_data[0], req[0], x * weights.astype(x.dtype))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        weights, x = in_data
        self.assign(in_grad[0], req[0], mx.nd.zeros_like(weights))
        self.assign(in_grad[1], req[1], out_grad[0] * weights.astype(x.dtype))


@mx.operator.register("test_weighted")
class WeightedProp(mx.operator.CustomOpProp):
    """Multiplies by whole numbers. MXNet's default is the first input's type for all outputs."""

    def list_arguments(self):
        return ["weights", "x"]

    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def infer_type(self, in_type):
        return in_type, [in_type[1]], []

    def create_operator(self, ctx, shapes, dtypes):
        return Weighted()


def test_outputs_of_a_custom_operator_keep_their_types():
    x, weights = PARAMETERS["x"], mx.nd.arange(12, dtype="int32").reshape((3, 4))
    symbol = mx.sym.Custom(mx.sym.var("weights"), mx.sym.var("x"), op_type="test_weighted")
    (found,), gradients, _ = train(symbol, {"weights": weights}, {"x": x})
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, x.asnumpy() * weights.asnumpy(), rtol=1e-6)
    np.testing.assert_allclose(gradients["x"], weights.asnumpy())
