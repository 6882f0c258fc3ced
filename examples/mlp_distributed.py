"""Train a small multi-layer perceptron in several processes: an ordinary Gluon script."""

import mxnet as mx
from mxnet import autograd, gluon, nd

kv = mx.kv.create("dist_sync")
mx.random.seed(1)
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(256, activation="relu"), gluon.nn.Dense(8))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv)
data, label = nd.random.normal(shape=(32, 64)), nd.arange(32) % 8
share = slice(kv.rank, None, kv.num_workers)  # of the batch, this process's
for step in range(3):
    with autograd.record():
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(data[share]), label[share])
    loss.backward()
    trainer.step(32)
    if kv.rank == 0:
        print(f"step {step}: loss of process 0 {loss.mean().asscalar():.6f}")
