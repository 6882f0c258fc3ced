"""The gradients of transposed convolutions, compared with sums written out in NumPy."""

import itertools
import json

import mxnet as mx
import numpy as np
import pytest

from tofu.mx.graphs.training_graph import training_graph

from ..models import random
from ..whole import shapes_of, train

CHANNELS, FILTERS = 4, 6


def expected_gradients(x, weight, head, stride, dilate, pad, groups):
    """Gradients of data, weight and bias, tap by tap: y reaches stride*y + dilate*tap - pad."""
    by_x, by_weight = np.zeros_like(x), np.zeros_like(weight)
    inputs, filters = x.shape[1] // groups, weight.shape[1]
    for tap in itertools.product(*map(range, weight.shape[2:])):
        pairs = []
        for d, k in enumerate(tap):
            y = np.arange(x.shape[2 + d])
            reached = stride[d] * y + dilate[d] * k - pad[d]
            inside = (reached >= 0) & (reached < head.shape[2 + d])
            pairs.append((y[inside], reached[inside]))
        for b, group in itertools.product(range(x.shape[0]), range(groups)):
            ins = np.arange(group * inputs, (group + 1) * inputs)
            outs = np.arange(group * filters, (group + 1) * filters)
            read = np.ix_([b], ins, *(y for y, _ in pairs))
            made = np.ix_([b], outs, *(at for _, at in pairs))
            matrix = weight[(ins, slice(None), *tap)]
            own, heads = x[read][0], head[made][0]
            by_x[read] += np.tensordot(matrix, heads, axes=(1, 0))[None]
            axes = tuple(range(1, own.ndim))
            by_weight[(ins, slice(None), *tap)] += np.tensordot(own, heads, axes=(axes, axes))
    return by_x, by_weight, head.sum(axis=(0, *range(2, head.ndim)))


SHAPES = {  # data's space, then the operator's attributes
    "one dimension": ((7,), {"kernel": (3,)}),
    "strides": ((5, 4), {"kernel": (4, 4), "stride": (2, 2), "pad": (1, 1)}),
    "unequal": ((5, 7), {"kernel": (4, 2), "stride": (3, 1), "pad": (1, 0)}),
    "one pixel": ((1, 1), {"kernel": (4, 4)}),
    "dilated": ((6, 5), {"kernel": (3, 2), "dilate": (2, 3), "pad": (1, 0)}),
    "adjusted": ((4, 5), {"kernel": (3, 3), "stride": (3, 2), "pad": (1, 1), "adj": (2, 1)}),
    "strides wider than the kernel": ((4, 5), {"kernel": (2, 1), "stride": (3, 2)}),
    "target shape": ((4, 5), {"kernel": (4, 3), "stride": (2, 2), "target_shape": (7, 10)}),
    "target shape of one dimension": (
        (8,),
        {"kernel": (5,), "stride": (2,), "target_shape": (17,)},
    ),
    "groups": ((5, 4), {"kernel": (3, 4), "num_group": 2, "stride": (2, 1)}),
    "depthwise": ((5, 4), {"kernel": (3, 3), "num_group": 4, "num_filter": 4}),
    "three dimensions": ((3, 4, 2), {"kernel": (2, 3, 2), "stride": (2, 1, 2)}),
}


def case(name, dtype, bias):
    space, options = SHAPES[name]
    options = {"num_filter": FILTERS, "num_group": 1, **options}
    filters = options["num_filter"] // options["num_group"]
    parameters = {
        "x": random((2, CHANNELS, *space), dtype, seed=1),
        "w": random((CHANNELS, filters, *options["kernel"]), dtype, seed=2),
    }
    if bias:
        parameters["b"] = random((options["num_filter"],), dtype, seed=3)
    variables = [mx.sym.var(name) for name in parameters]
    symbol = mx.sym.Deconvolution(*variables, no_bias=not bias, **options)
    return symbol, parameters, options


def expected(parameters, head, options):
    rank = len(options["kernel"])
    x, weight = (parameters[name].asnumpy().astype("float64") for name in "xw")
    stride, dilate = (options.get(name, (1,) * rank) for name in ("stride", "dilate"))
    pad = options.get("pad", (0,) * rank)
    if "target_shape" in options:
        reached = [
            s * (n - 1) + d * (k - 1) + 1
            for s, n, d, k in zip(stride, x.shape[2:], dilate, options["kernel"])
        ]
        pad = tuple((r - t + 1) // 2 for r, t in zip(reached, options["target_shape"]))
    head = head.asnumpy().astype("float64")
    found = expected_gradients(x, weight, head, stride, dilate, pad, options["num_group"])
    return dict(zip("xwb", found))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("name", SHAPES)
def test_gradients(name, bias, dtype):
    symbol, parameters, options = case(name, dtype, bias)
    if len(options["kernel"]) == 3 and dtype == "float64":
        pytest.skip("MXNet has no such operator on CPUs")
    if "target_shape" in options and dtype == "float32":
        pytest.skip("MXNet's own operator fails on CPUs")
    (shape,) = symbol.infer_shape(**{n: a.shape for n, a in parameters.items()})[1]
    head = random(shape, dtype, seed=4)
    _, gradients, _ = train(symbol, {}, parameters, head_gradients=[head])
    wanted = expected(parameters, head, options)
    assert gradients.keys() == parameters.keys()
    for each, found in gradients.items():
        assert found.dtype == dtype
        tolerance = 1e-11 if dtype == "float64" else 1e-5
        scale = abs(wanted[each]).max()
        np.testing.assert_allclose(
            found / scale, wanted[each] / scale, rtol=0, atol=tolerance, err_msg=each
        )


def graph_of(symbol, parameters, gradients):
    graph = training_graph(
        symbol,
        inputs={},
        parameters=shapes_of(parameters),
        aux={},
        gradients=gradients,
        train=True,
    )
    return json.loads(graph.to_json())["nodes"]


@pytest.mark.parametrize("name", ["strides", "groups", "adjusted"])
def test_no_tensor_is_copied_for_them(name):
    """The graph has only convolutions of the operator's own inputs."""
    symbol, parameters, _ = case(name, "float32", True)
    nodes = graph_of(symbol, parameters, list(parameters))
    operators = [node["op"] for node in nodes if node["op"] != "null"]
    assert sorted(operators) == sorted(
        ["Deconvolution", "Convolution", "_backward_Convolution", "sum"]
    )
    (gradient,) = [node for node in nodes if node["op"] == "_backward_Convolution"]
    read = [nodes[i]["name"] for i, *_ in gradient["inputs"]]
    assert read == ["x", "tofu_head_gradient0", "w"]


def test_a_gradient_that_is_not_wanted_is_not_computed():
    symbol, parameters, _ = case("strides", "float32", False)
    nodes = graph_of(symbol, parameters, ["w"])
    assert "Convolution" not in [node["op"] for node in nodes]
    (gradient,) = [node for node in nodes if node["op"] == "_backward_Convolution"]
    # The gradient still belongs to its forward operator.
    assert [nodes[i]["op"] for i in gradient["control_deps"]] == ["Deconvolution"]
