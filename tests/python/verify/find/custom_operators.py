"""Operators written in Python, and descriptions of them."""

import mxnet as mx
from mxnet import nd

import tofu
from tofu.verify import In, case


class Swish(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * nd.sigmoid(in_data[0]))

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        s = nd.sigmoid(in_data[0])
        self.assign(in_grad[0], req[0], out_grad[0] * s * (1 + in_data[0] * (1 - s)))


@mx.operator.register("test_swish")
class SwishProp(mx.operator.CustomOpProp):
    def infer_shape(self, in_shape):
        return in_shape, [in_shape[0]], []

    def create_operator(self, ctx, shapes, dtypes):
        return Swish()


class Keeping(Swish):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.kept = in_data[0]
        super().forward(is_train, req, in_data, out_data, aux)


@mx.operator.register("test_keeping")
class KeepingProp(SwishProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Keeping()


class RowSums(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        data, weight = in_data
        self.assign(out_data[0], req[0], nd.dot(data, weight))


@mx.operator.register("test_dot")
class RowSumsProp(mx.operator.CustomOpProp):
    def list_arguments(self):
        return ["data", "weight"]

    def infer_shape(self, in_shape):
        return in_shape, [[in_shape[0][0], in_shape[1][1]]], []

    def create_operator(self, ctx, shapes, dtypes):
        return RowSums()


class Product(RowSums):
    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], nd.dot(out_grad[0], in_data[1], transpose_b=True))
        self.assign(in_grad[1], req[1], nd.dot(in_data[0], out_grad[0], transpose_a=True))


@mx.operator.register("test_product")
class ProductProp(RowSumsProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Product()


class Raising(Swish):
    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        raise KeyError("of the script")


@mx.operator.register("test_raising")
class RaisingProp(SwishProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Raising()


@tofu.op(name="Custom:test_swish")
def swish(x):
    return lambda *i: tofu.lang.apply("swish", x[i])


@tofu.op(name="_backward_Custom:test_swish")
def backward_swish(ograd, x, out):
    return lambda *i: tofu.lang.apply("by_input", ograd[i], x[i], out[i])


@tofu.op(name="Custom:test_dot")
def false_dot(data, weight):
    """Wrong: every row is said to read its own row of the weight."""
    return lambda i, j: tofu.lang.apply("f", data[i, j], weight[i, j])


CASES = [
    case("Custom", In((6, 4)), attrs={"op_type": "test_swish"}),
    case("Custom", In((4, 4)), In((4, 4)), attrs={"op_type": "test_dot"}),
]
