"""Every loss of Gluon takes the output of a net as tiles."""

import mxnet as mx
import pytest
from mxnet import autograd, gluon

import tofu.gluon

from .handing_on import CLASSES, batch, dense, gathers, label
from .models import assert_same, plainly

LOSSES = {
    "L2Loss": (lambda make: make(), lambda: (batch(12, CLASSES),)),
    "L1Loss": (lambda make: make(), lambda: (batch(12, CLASSES),)),
    "SigmoidBinaryCrossEntropyLoss": (lambda make: make(), lambda: (batch(12, CLASSES) > 0,)),
    "SoftmaxCrossEntropyLoss": (lambda make: make(), lambda: (label(),)),
    "SoftmaxCELoss": (lambda make: make(sparse_label=False), lambda: (batch(12, CLASSES).abs(),)),
    "KLDivLoss": (lambda make: make(from_logits=False), lambda: (batch(12, CLASSES).abs(),)),
    "HuberLoss": (lambda make: make(), lambda: (batch(12, CLASSES),)),
    "HingeLoss": (lambda make: make(), lambda: (batch(12, CLASSES).sign(),)),
    "SquaredHingeLoss": (lambda make: make(), lambda: (batch(12, CLASSES).sign(),)),
    "LogisticLoss": (lambda make: make(), lambda: (batch(12, CLASSES).sign(),)),
    "TripletLoss": (lambda make: make(), lambda: (batch(12, CLASSES), -batch(12, CLASSES))),
    "PoissonNLLLoss": (lambda make: make(), lambda: (batch(12, CLASSES).abs(),)),
    "CosineEmbeddingLoss": (lambda make: make(), lambda: (batch(12, CLASSES), label().sign())),
}
FLOAT32_ONLY = {"CosineEmbeddingLoss"}  # in MXNet


def use_loss(name, dtype, weighted):
    make, others = LOSSES[name]
    net, loss_of = dense(), make(getattr(gluon.loss, name))
    net.cast(dtype)
    loss_of.hybridize()
    arguments = [other.astype(dtype) for other in others()]
    if weighted:
        arguments.append(mx.nd.ones((12, 1), dtype=dtype) * 2)
    found = []
    for _ in range(2):
        with autograd.record():
            loss = loss_of(net(batch().astype(dtype)), *arguments)
        loss.backward()
        found += [loss.copy(), net.weight.grad().copy()]
    return found


@pytest.mark.parametrize(
    ("name", "dtype", "count"),
    [(name, "float32", 3) for name in LOSSES]
    + [(name, "float64", 2) for name in LOSSES if name not in FLOAT32_ONLY],
)
@pytest.mark.filterwarnings("ignore:.*they are replicated")
def test_every_loss_takes_tiles(name, dtype, count):
    expected = use_loss(name, dtype, False)
    tofu.gluon.enable(workers=count, device="cpu", log="quiet")
    with gathers() as found:
        assert_same(use_loss(name, dtype, False), expected)
    tofu.gluon.disable()
    assert (12, CLASSES) not in found


def test_a_loss_with_weights_of_examples(two):
    arguments = "SoftmaxCrossEntropyLoss", "float32", True
    assert_same(use_loss(*arguments), plainly(use_loss, *arguments))


def sequences(loss_of, labels):
    net = dense(flatten=False)
    loss_of.hybridize()
    inputs = batch(60).reshape((12, 5, 8))
    found = []
    for _ in range(2):
        with autograd.record():
            loss = loss_of(net(inputs), labels)
        loss.backward()
        found += [loss.copy(), net.weight.grad().copy()]
    return found


@pytest.mark.parametrize(
    ("make", "labels"),
    [
        (gluon.loss.SoftmaxCrossEntropyLoss, mx.nd.arange(60).reshape((12, 5)) % CLASSES),
        (gluon.loss.CTCLoss, mx.nd.arange(24).reshape((12, 2)) % (CLASSES - 1)),
    ],
)
def test_losses_of_sequences(workers, make, labels):
    with gathers() as found:
        result = sequences(make(), labels)
    assert_same(result, plainly(sequences, make(), labels), rounded=True)
    assert found == [(12,), (12,)]
