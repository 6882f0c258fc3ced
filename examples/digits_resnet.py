"""Train a small residual network on 1,797 handwritten digits with MXNet Gluon.

The images (8 by 8 pixels) come with scikit-learn. An ordinary Gluon script::

    python examples/digits_resnet.py --epochs 5

The activation is tanh. Most pixels are background and have the same value, so with relu a
rounding error could move all of them across the kink at once, and grow.
"""

import argparse
import json
import time

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn
from sklearn.datasets import load_digits

TRAINING_IMAGES = 1500


class Residual(nn.HybridBlock):
    """Two 3x3 convolutions with batch normalization, and a shortcut around them."""

    def __init__(self, channels, stride=1):
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(
                nn.Conv2D(channels, 3, strides=stride, padding=1, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("tanh"),
                nn.Conv2D(channels, 3, padding=1, use_bias=False),
                nn.BatchNorm(),
            )
            self.shortcut = nn.HybridSequential()
            if stride > 1:
                self.shortcut.add(
                    nn.Conv2D(channels, 1, strides=stride, use_bias=False),
                    nn.BatchNorm(),
                )

    def hybrid_forward(self, F, x):
        """Run the block on `x`, (batch, channels, height, width)."""
        return F.tanh(self.body(x) + self.shortcut(x))


def make_net(width):
    """A network of two residual blocks, with `width` and twice `width` channels."""
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(width, 3, padding=1, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("tanh"),
        Residual(width),
        Residual(2 * width, stride=2),
        nn.GlobalAvgPool2D(),
        nn.Dense(10),
    )
    return net


def load_data(batch_size, dtype):
    """The digits as two loaders: 1,500 images for training, 297 for testing."""
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(dtype)
    labels = digits.target.astype("float32")
    split = slice(None, TRAINING_IMAGES), slice(TRAINING_IMAGES, None)
    training, test = (gluon.data.ArrayDataset(images[part], labels[part]) for part in split)
    return (
        gluon.data.DataLoader(training, batch_size, shuffle=True, last_batch="keep"),
        gluon.data.DataLoader(test, batch_size, last_batch="keep"),
    )


def train_epoch(net, loader, loss_function, trainer, ctx):
    """Train on every image once. Returns the mean loss and every step's loss."""
    total, count, steps = 0.0, 0, []
    for images, labels in loader:
        images, labels = images.as_in_context(ctx), labels.as_in_context(ctx)
        with autograd.record():
            losses = loss_function(net(images), labels)
        losses.backward()
        trainer.step(len(images))
        steps.append(float(losses.mean().asscalar()))
        total += steps[-1] * len(images)
        count += len(images)
    return total / count, steps


def measure_accuracy(net, loader, ctx):
    """The share of images that `net` classifies correctly."""
    metric = mx.metric.Accuracy()
    for images, labels in loader:
        metric.update(labels, net(images.as_in_context(ctx)).as_in_context(labels.context))
    return metric.get()[1]


def main():
    """Train, print one line per epoch, test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=16, help="channels of the first block")
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--save", metavar="FILE", help="where to save the parameters")
    parser.add_argument("--metrics", metavar="FILE", help="where to write the losses, as JSON")
    args = parser.parse_args()

    mx.random.seed(7)
    np.random.seed(7)
    ctx = mx.gpu() if mx.context.num_gpus() else mx.cpu()
    training, test = load_data(args.batch_size, args.dtype)
    net = make_net(args.width)
    net.initialize(mx.init.Xavier(), ctx=ctx)
    net.cast(args.dtype)
    net.hybridize()
    settings = {
        "sgd": {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-4},
        "adam": {"learning_rate": 0.001},
    }
    trainer = gluon.Trainer(net.collect_params(), args.optimizer, settings[args.optimizer])
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()

    metrics = {"loss": [], "step_loss": [], "seconds": []}
    for epoch in range(1, args.epochs + 1):
        start = time.perf_counter()
        loss, steps = train_epoch(net, training, loss_function, trainer, ctx)
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss {loss:.6f}, {seconds:.1f} s", flush=True)
        metrics["loss"].append(loss)
        metrics["step_loss"] += steps
        metrics["seconds"].append(seconds)
    metrics["accuracy"] = measure_accuracy(net, test, ctx)
    print(f"accuracy on {len(test._dataset)} test images: {metrics['accuracy']:.4f}")

    if args.save:
        net.save_parameters(args.save)
    if args.metrics:
        with open(args.metrics, "w", encoding="utf-8") as file:
            json.dump(metrics, file)


if __name__ == "__main__":
    main()
