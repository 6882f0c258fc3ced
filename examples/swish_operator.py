"""An operator of one's own in Python: swish, x * sigmoid(x), with its gradient."""

import mxnet as mx


class Swish(mx.operator.CustomOp):
    """Computes swish and its gradient on arrays; keeps nothing between the two."""

    def forward(self, is_train, req, in_data, out_data, aux):
        """Compute x * sigmoid(x)."""
        x = in_data[0]
        self.assign(out_data[0], req[0], x * x.sigmoid())

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        """Compute the gradient of x."""
        x = in_data[0]
        sigmoid = x.sigmoid()
        slope = sigmoid * (1 + x * (1 - sigmoid))
        self.assign(in_grad[0], req[0], out_grad[0] * slope)


@mx.operator.register("swish")
class SwishProp(mx.operator.CustomOpProp):
    """Declares the operator: one input, one output of the same shape."""

    def declare_backward_dependency(self, out_grad, in_data, out_data):
        """Return the tensors that the gradient reads."""
        return [out_grad[0], in_data[0]]

    def create_operator(self, context, shapes, dtypes):
        """Make the operator for inputs of these shapes."""
        return Swish()
