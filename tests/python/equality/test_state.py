"""If an operator's gradient needs its own state, the block's other operators are partitioned."""

import warnings

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
from tofu.gluon.session.messages import TofuWarning

STEPS = 4
BOXES = [[0, 0, 0, 3, 3], [1, 1, 0, 4, 5], [2, 2, 2, 5, 5], [3, 0, 1, 5, 4]]


class Regions(nn.HybridBlock):
    """Predicts classes of boxes in an image, like a detector."""

    def __init__(self, **kwargs):
        super().__init__(prefix="net_", **kwargs)
        with self.name_scope():
            self.image, self.classes = nn.Conv2D(8, 3, padding=1), nn.Dense(12)

    def hybrid_forward(self, F, x, boxes):
        return self.classes(F.ROIPooling(self.image(x), boxes, (3, 3), 1.0))


class Last(nn.HybridBlock):
    """Predicts a class for the last element of each sequence."""

    def __init__(self, **kwargs):
        super().__init__(prefix="net_", **kwargs)
        with self.name_scope():
            self.words, self.classes = nn.Dense(16, flatten=False), nn.Dense(12)

    def hybrid_forward(self, F, x, lengths):
        return self.classes(F.SequenceLast(F.tanh(self.words(x)), lengths, True))


BLOCKS = {
    "_backward_ROIPooling": (Regions, (4, 4, 6, 6), BOXES),
    "_backward_SequenceLast": (Last, (5, 4, 8), [1, 5, 3, 2]),
}


def train(block, shape, second, dtype):
    mx.random.seed(2)
    net = block()
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize()
    trainer, losses = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001}), []
    for step in range(STEPS):
        x = mx.nd.array(np.random.RandomState(step).normal(size=shape), dtype=dtype)
        with autograd.record():
            loss = net(x, mx.nd.array(second, dtype=dtype)).square().sum(axis=1)
        loss.backward()
        trainer.step(4)
        losses.append(loss.asnumpy())
    weights = net._collect_params_with_prefix()
    return {"losses": losses, **{n: weight.data().asnumpy() for n, weight in weights.items()}}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("op", BLOCKS)
def test_only_that_gradient_is_computed_whole(op, workers, dtype, capsys):
    expected = train(*BLOCKS[op], dtype)
    tofu.enable(workers=workers, device="cpu")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = train(*BLOCKS[op], dtype)
    finally:
        tofu.disable()
    (text,) = [str(each.message) for each in seen if each.category is TofuWarning]
    assert f"{op}: its gradient needs what the forward operator keeps to itself" in text
    assert "0 bytes" not in text
    assert f"over {workers} workers" in capsys.readouterr().err
    tolerance = 1e-11 if dtype == "float64" else 1e-5
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)
