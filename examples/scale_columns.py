"""Trains a net with an operator of one's own in C++, which scale_columns_operator.py loads."""

import mxnet as mx
import scale_columns_operator  # noqa: F401  (loads the operator)
from mxnet import autograd, gluon, nd


class Net(gluon.HybridBlock):
    """Two layers, with a scale for every unit between them."""

    def __init__(self):
        super().__init__()
        self.hidden = gluon.nn.Dense(64, activation="relu")
        self.out = gluon.nn.Dense(8)
        self.scale = self.params.get("scale", shape=(64,), init="ones")

    def hybrid_forward(self, F, x, scale):
        """The scores of the classes."""
        return self.out(F.scale_columns(self.hidden(x), scale))


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


if __name__ == "__main__":
    main()
