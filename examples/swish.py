"""Trains a net with an operator of one's own, which swish_operator.py registers."""

import mxnet as mx
import swish_operator  # noqa: F401  (registers the operator)
from mxnet import autograd, gluon, nd


class Net(gluon.HybridBlock):
    """Two layers with swish between them."""

    def __init__(self):
        super().__init__()
        self.hidden = gluon.nn.Dense(64)
        self.out = gluon.nn.Dense(8)

    def hybrid_forward(self, F, x):
        """The scores of the classes."""
        return self.out(F.Custom(self.hidden(x), op_type="swish"))


def main():
    """Train for three steps and print the loss."""
    mx.random.seed(1)
    net = Net()
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    data, label = nd.random.normal(shape=(32, 24)), nd.arange(32) % 8
    for step in range(3):
        with autograd.record():
            loss = loss_of(net(data), label)
        loss.backward()
        trainer.step(32)
        print(f"step {step}: loss {loss.mean().asscalar():.5f}")
    mx.nd.waitall()  # MXNet may hang at the end of a script while an operator in Python runs


if __name__ == "__main__":
    main()
