"""Train a small multi-layer perceptron on random data: an ordinary Gluon script."""

import mxnet as mx
from mxnet import autograd, gluon, nd

mx.random.seed(1)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(256, activation="relu"), gluon.nn.Dense(8))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
data, label = nd.random.normal(shape=(32, 64)), nd.arange(32) % 8
for step in range(3):
    with autograd.record():
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(data), label)
    loss.backward()
    trainer.step(32)
    print(f"step {step}: loss {loss.mean().asscalar():.6f}")
