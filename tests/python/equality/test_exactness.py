"""Errors against float64: a partitioned operator is at most twice as far off as plain MXNet's.

``python -m equality.test_exactness`` (in tests/python) prints docs/results/exactness.md.
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
MOST = 2  # times plain's error
# The error of a single draw may be small by luck. Eight draws are taken, and more if they differ.
DRAWS = (8, 48)
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
    """An operator, or a layer with an operator after it.

    Attributes:
        layer: makes the layer, or None.
        operator: the operator, which follows the layer if there is one.
        rank: of its input, without the batch.
        least: smallest scale of a relative error. Sums of parts are rounded separately, so if they
            cancel, plain MXNet's compensated sum is more exact.
        values: the names in VALUES to try.
        sizes: numbers of features; None: those of SIZES.
    """

    layer: Optional[Callable[[], Any]] = None
    operator: Callable[..., Any] = lambda F, x: x
    rank: int = 1
    least: float = 0.0
    values: tuple[str, ...] = ("usual", "far")
    sizes: tuple[int, ...] = ()


def variance(F, x):
    return F.mean(F.square(F.broadcast_sub(x, F.mean(x, axis=0, keepdims=True))), axis=0)


# Means and deviations of the inputs. Samples at a ReLU's edge are zeros, near zero, or usual.
VALUES = {"usual": (0.0, 1.0), "far": (100.0, 0.1), "edge": (0.0, 1.0)}
NEARNESS = (0.0, 1e-7, 1.0)
EDGE = tuple(VALUES)
CASES = {
    "BatchNorm": Case(nn.BatchNorm, rank=3),
    "BatchNorm of rows": Case(nn.BatchNorm),
    "LayerNorm": Case(nn.LayerNorm),
    "GroupNorm": Case(lambda: nn.GroupNorm(2), rank=3, sizes=(4, 8)),
    "L2Normalization": Case(operator=lambda F, x: F.L2Normalization(x), sizes=(6, 96, 1024)),
    "L2Normalization of one value": Case(
        operator=lambda F, x: F.L2Normalization(x), least=1.0, sizes=(1,)
    ),
    "softmax": Case(operator=lambda F, x: F.softmax(x)),
    "log_softmax": Case(operator=lambda F, x: F.log_softmax(x)),
    "norm": Case(operator=lambda F, x: F.norm(x, axis=1)),
    "mean": Case(operator=lambda F, x: F.mean(x, axis=0)),
    "mean of all": Case(operator=lambda F, x: F.mean(x), least=0.1),
    "variance": Case(operator=lambda F, x: variance(F, x)),
    "product": Case(operator=lambda F, x: F.prod(F.clip(x, 0.9, 1.1), axis=1)),
    "Dense": Case(lambda: nn.Dense(8)),
    "Conv2D": Case(lambda: nn.Conv2D(8, 3, padding=1), rank=3),
    "ReLU": Case(operator=lambda F, x: F.relu(x), values=EDGE),
    "ReLU of Dense": Case(lambda: nn.Dense(8), lambda F, x: F.relu(x), values=EDGE),
    "ReLU of Conv2D": Case(
        lambda: nn.Conv2D(8, 3, padding=1), lambda F, x: F.relu(x), rank=3, values=EDGE
    ),
    "L2Loss": Case(operator=lambda F, x: F.mean(F.square(x - 1), axis=1)),
    "HuberLoss": Case(operator=lambda F, x: F.mean(F.smooth_l1(x), axis=1)),
    "KLDivLoss": Case(operator=lambda F, x: F.mean(-F.log_softmax(x) / 2, axis=1)),
}
SIZES = {1: (1, 6, 96, 1024), 3: (1, 4, 8)}  # of features, by rank
BATCHES = (1, 2, 3, 64)
SAMPLE = {1: (2, 96), 3: (2, 8, 6, 6)}  # the shapes of the ordinary run


def shapes(case, batches=BATCHES):
    for size in case.sizes or SIZES[case.rank]:
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
    drawn = mean + deviation * draw.normal(size=shape)
    if values == "edge":
        drawn *= draw.choice(NEARNESS, size=(shape[0], *(1 for _ in shape[1:])))
    x = mx.nd.array(drawn.astype("float32"), dtype=dtype)
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


def differences(found, exact):
    """The largest error of each array."""
    return [np.abs(a - b).max() for a, b in zip(found, exact)]


def errors(case, shape, values, draws):
    """Per array, errors relative to largest values: plain, and for each of RUNS.

    Both are root mean squares over some draws: relative to the value of one draw, in which a sum
    may cancel, an error depends on luck.
    """
    found, sizes = [], []
    for seed in range(draws):
        exact = run(case, shape, values, "float64", seed)
        sizes.append([np.abs(each).max() for each in exact])
        found.append([differences(run(case, shape, values, "float32", seed), exact)])
        for workers, mode in RUNS:
            tofu.gluon.enable(workers=workers, search=mode, device="cpu", log="quiet")
            try:
                parted = run(case, shape, values, "float32", seed)
            finally:
                tofu.gluon.disable()
            found[-1].append(differences(parted, exact))
    size = np.sqrt(np.mean(np.square(sizes), axis=0))
    told = np.sqrt(np.mean(np.square(found), axis=0)) / np.maximum(size, case.least or 1e-30)
    return told[0], dict(zip(RUNS, told[1:]))


def measured(case, shape, values):
    """The result of `errors` with the fewest draws that show the operator as exact as plain."""
    for draws in DRAWS:
        plain, parted = errors(case, shape, values, draws)
        if all(ratio(plain, found) <= MOST for found in parted.values()):
            break
    return plain, parted


def ratio(plain, parted):
    """The partitioned error over the plain one; errors of a few roundings count as equal."""
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
    for values in case.values
    for shape in shapes(case)
]


@pytest.mark.filterwarnings("ignore:.*they are replicated")
@pytest.mark.parametrize(("name", "values", "shape"), PLACES)
def test_an_operator_is_as_exact_as_plain(name, values, shape):
    plain, parted = measured(CASES[name], shape, values)
    for how, found in parted.items():
        assert ratio(plain, found) <= MOST, (how, plain, found)


PAGE = """# Errors against float64

`python -m equality.test_exactness` (in `tests/python`) prints this page. Each operator that is
lowered or divided runs in float32 on inputs that are multiplied by a trained scale: plainly, over 2
workers (data parallel) and over 4 (the plan that the search finds). The output and every gradient
are compared with the plain run in float64. An error is the largest difference relative to the
largest value, each the root mean square of {few} draws, or of {many} where those of {few} are more
than twice as far off. Below {roundings} roundings of float32 it counts as {roundings} roundings.

The samples have {one} features, or {three} channels of 6 by 6 (a
GroupNorm's 4 or 8); the batches have {batches} samples.
"Usual" inputs have mean 0 and deviation 1, "far" ones mean 100 and deviation 0.1. The samples of
"edge" are zeros, values near 1e-7, or usual ones, so that a ReLU's inputs are at its edge.

Where all that is left of a sum is rounding, for plain MXNet, too, errors are relative to a value of
the column "at least": the mean of all, and the gradients of an L2Normalization of one value. These
are near 1e-11 in float64 and 0 in plain MXNet; tofu adds terms near 1 that cancel but for rounding.

A row shows the place, of all sizes, where the partitioned operator is furthest off compared with
plain MXNet.

| operator | inputs | at least | runs | ratio | plain | parts | workers | shape | at most twice |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |"""


def listed(values):
    return f"{', '.join(map(str, values[:-1]))} or {values[-1]}"


def row(name, values):
    """The row of an operator, for the place with the largest error."""
    places = [(*measured(CASES[name], shape, values), shape) for shape in shapes(CASES[name])]
    found = [
        (ratio(plain, parted), max(plain), max(parted), workers, "x".join(map(str, shape)))
        for plain, how, shape in places
        for (workers, _), parted in how.items()
    ]
    worst, plain, parted, workers, shape = max(found)
    over = sum(each[0] > MOST for each in found)
    verdict = f"no, in {over} of {len(found)}" if over else "yes"
    least = CASES[name].least or ""
    told = (
        f"{least} | {len(found)} | {worst:.2f} | {plain:.1e} | {parted:.1e} | {workers} | {shape}"
    )
    return f"| {name} | {values} | {told} | {verdict} |"


def main(names):
    said = PAGE.format(
        few=DRAWS[0],
        many=DRAWS[1],
        roundings=ROUNDINGS,
        one=listed(SIZES[1]),
        three=listed(SIZES[3]),
        batches=listed(BATCHES),
    )
    print(said, flush=True)
    for name in names or CASES:
        for values in CASES[name].values:
            print(row(name, values), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
