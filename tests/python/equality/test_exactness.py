"""Errors against float64: a partitioned operator is at most twice as far off as plain MXNet's.

``python -m equality.test_exactness`` (in tests/python) prints the table.
"""

import dataclasses
import sys
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu.gluon

EPSILON = np.finfo(np.float32).eps
ROUNDINGS = 4
DRAWS = 8  # the error of a single one may be small by luck
RUNS = ((2, "data-parallel"), (4, "tofu"))  # workers, and how plans are searched


class Scaled(gluon.HybridBlock):
    """An operator on inputs that are multiplied by trained ones, so that it is partitioned."""

    def __init__(self, layer, operator, features):
        super().__init__(prefix="net_")
        self.operator = operator
        with self.name_scope():
            self.scale = self.params.get("scale", shape=(1, *features), init="ones")
            self.layer = layer() if layer else None

    def hybrid_forward(self, F, x, scale):
        x = F.broadcast_mul(x, scale)
        return self.operator(F, self.layer(x) if self.layer else x)


@dataclasses.dataclass(frozen=True)
class Case:
    """An operator, or a layer and what follows.

    Attributes:
        layer: makes the layer, or None.
        operator: what follows.
        rank: of what it takes, without the batch.
        least: what an error is relative to at least. Sums of parts are rounded by themselves, so
            where they cancel, plain MXNet's compensated sum is more exact.
    """

    layer: Optional[Callable[[], Any]] = None
    operator: Callable[..., Any] = lambda F, x: x
    rank: int = 1
    least: float = 0.0


def variance(F, x):
    return F.mean(F.square(F.broadcast_sub(x, F.mean(x, axis=0, keepdims=True))), axis=0)


CASES = {
    "BatchNorm": Case(nn.BatchNorm, rank=3),
    "BatchNorm of rows": Case(nn.BatchNorm),
    "LayerNorm": Case(nn.LayerNorm),
    "GroupNorm": Case(lambda: nn.GroupNorm(2), rank=3),
    "L2Normalization": Case(operator=lambda F, x: F.L2Normalization(x)),
    "softmax": Case(operator=lambda F, x: F.softmax(x)),
    "log_softmax": Case(operator=lambda F, x: F.log_softmax(x)),
    "norm": Case(operator=lambda F, x: F.norm(x, axis=1)),
    "mean": Case(operator=lambda F, x: F.mean(x, axis=0)),
    "mean of all": Case(operator=lambda F, x: F.mean(x), least=0.1),
    "variance": Case(operator=lambda F, x: variance(F, x)),
    "product": Case(operator=lambda F, x: F.prod(F.clip(x, 0.9, 1.1), axis=1)),
    "Dense": Case(lambda: nn.Dense(8)),
    "Conv2D": Case(lambda: nn.Conv2D(8, 3, padding=1), rank=3),
    "ReLU": Case(lambda: nn.Dense(8), lambda F, x: F.relu(x)),
    "L2Loss": Case(operator=lambda F, x: F.mean(F.square(x - 1), axis=1)),
    "HuberLoss": Case(operator=lambda F, x: F.mean(F.smooth_l1(x), axis=1)),
    "KLDivLoss": Case(operator=lambda F, x: F.mean(-F.log_softmax(x) / 2, axis=1)),
}
SIZES = {1: (6, 96, 1024), 3: (4, 8)}  # of features, by rank
BATCHES = (1, 2, 3, 64)
SAMPLE = {1: (2, 96), 3: (2, 8, 6, 6)}  # the shapes of the ordinary run
# Means and deviations of the inputs.
VALUES = {"usual": (0.0, 1.0), "far": (100.0, 0.1)}


def shapes(case, batches=BATCHES):
    for size in SIZES[case.rank]:
        for batch in batches:
            yield (batch, size) if case.rank == 1 else (batch, size, 6, 6)


def run(case, shape, values, dtype, seed):
    """The output and all gradients."""
    draw = np.random.RandomState(seed)
    mean, deviation = VALUES[values]
    mx.random.seed(seed)
    features = (shape[1], *(1 for _ in shape[2:]))
    net = Scaled(case.layer, case.operator, features)
    net.initialize(mx.init.Normal(0.1))
    x = mx.nd.array((mean + deviation * draw.normal(size=shape)).astype("float32"), dtype=dtype)
    net(x.astype("float32"))
    net.cast(dtype)
    net.hybridize()
    x.attach_grad()
    with autograd.record():
        y = net(x)
    head = mx.nd.array(draw.normal(size=y.shape).astype("float32"), dtype=dtype)
    y.backward(head)
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    return [each.asnumpy().astype("float64") for each in (y, x.grad, *(p.grad() for p in trained))]


def error(case, found, exact):
    """The largest error of each array, relative to its largest value."""
    return [
        np.abs(a - b).max() / max(np.abs(b).max(), case.least or 1e-30)
        for a, b in zip(found, exact)
    ]


def errors(case, shape, values):
    """Per array, root mean squares of errors over some draws: plain, and for each of RUNS."""
    found = []
    for seed in range(DRAWS):
        exact = run(case, shape, values, "float64", seed)
        found.append([error(case, run(case, shape, values, "float32", seed), exact)])
        for workers, mode in RUNS:
            tofu.gluon.enable(workers=workers, search=mode, device="cpu", log="quiet")
            try:
                parted = run(case, shape, values, "float32", seed)
            finally:
                tofu.gluon.disable()
            found[-1].append(error(case, parted, exact))
    plain, *parted = np.sqrt(np.mean(np.square(found), axis=0))
    return plain, dict(zip(RUNS, parted))


def ratio(plain, parted):
    """How much further off the partitioned operator is; errors of a few roundings are equal."""
    return float((parted / np.maximum(plain, ROUNDINGS * EPSILON)).max())


PLACES = [
    pytest.param(
        name,
        values,
        shape,
        id=f"{name}-{values}-{'x'.join(map(str, shape))}",
        marks=[] if shape == SAMPLE[CASES[name].rank] else [pytest.mark.whole],
    )
    for name, case in CASES.items()
    for values in VALUES
    for shape in shapes(case)
]


@pytest.mark.filterwarnings("ignore:.*they are replicated")
@pytest.mark.parametrize(("name", "values", "shape"), PLACES)
def test_an_operator_is_as_exact_as_plain(name, values, shape):
    plain, parted = errors(CASES[name], shape, values)
    for how, found in parted.items():
        assert ratio(plain, found) <= 2, (how, plain, found)


def main(names):
    """Print, for each operator, the place where it is furthest off."""
    for name in names or CASES:
        for values in VALUES:
            rows = []
            for shape in shapes(CASES[name]):
                plain, parted = errors(CASES[name], shape, values)
                rows += [
                    (ratio(plain, found), max(plain), max(found), how, shape)
                    for how, found in parted.items()
                ]
            worst, of_plain, of_parts, how, shape = max(rows)
            told = f"{worst:5.2f} {of_plain:8.1e} {of_parts:8.1e}  {how} {shape}"
            print(f"{name:20} {values:6} {told}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
