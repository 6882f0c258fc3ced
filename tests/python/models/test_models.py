"""The models build, have the expected numbers of weights, and can be planned."""

import functools
import json
import math
import resource
import subprocess
import sys

import mxnet as mx
import numpy as np
import pytest

from tofu import _core, models
from tofu.analysis.strategy_table import strategy_table
from tofu.errors import ConfigError
from tofu.plans import Plan

GIB_IN_KIB = 2**20

build = functools.cache(models.build)
# Models that share their reduced version need to be tested once.
STRUCTURES = {(m.factory, repr(m.reduced)): m.name for m in models.MODELS.values()}


@functools.cache
def planning_problem(name):
    graph = models.build(name, 8, reduced=True).training_graph()
    return graph, *strategy_table(graph)


def count(name):
    return sum(math.prod(shape) for shape, _ in build(name).parameters.values())


def lstm_parameters(layers, hidden, features, classes):
    inputs = [features] + [hidden] * (layers - 1)
    gates = sum(4 * hidden * (width + hidden + 2) for width in inputs)
    return gates + (hidden + 1) * classes


def wresnet_parameters(blocks, width, classes=1000):
    """Kernels, a scale and a shift for each of their outputs, and the classifier."""
    kernels = [(3, 64 * width, 7)]
    previous = 64 * width
    for stage, repeats in enumerate(blocks):
        inner = 64 * width << stage
        for i in range(repeats):
            kernels += [(previous, inner, 1), (inner, inner, 3), (inner, 4 * inner, 1)]
            if i == 0:
                kernels.append((previous, 4 * inner, 1))
            previous = 4 * inner
    convolutions = sum(i * o * size * size + 2 * o for i, o, size in kernels)
    return convolutions + (previous + 1) * classes


@pytest.mark.parametrize("name", models.MODELS)
def test_every_model_has_shapes_and_one_loss_an_example(name):
    graph = build(name)
    batch = models.find(name).batch_size
    _, outputs, _ = graph.symbol.infer_shape(**{key: s for key, (s, _) in graph.inputs.items()})
    assert outputs == [(batch,)]
    variables = {**graph.inputs, **graph.parameters, **graph.aux}
    assert set(variables) == set(graph.symbol.list_inputs())
    assert all(shape and min(shape) > 0 for shape, _ in variables.values())
    assert all(shape[0] == batch for shape, _ in graph.inputs.values())


@pytest.mark.parametrize("layers", [6, 8, 10])
@pytest.mark.parametrize("thousands", [4, 6, 8])
def test_rnn_has_as_many_parameters_as_its_gates(layers, thousands):
    expected = lstm_parameters(layers, 1024 * thousands, features=128, classes=128)
    assert count(f"rnn-{layers}-{thousands}k") == expected


@pytest.mark.parametrize("width", [4, 6, 8, 10])
@pytest.mark.parametrize("depth", [50, 101, 152])
def test_wresnet_has_as_many_parameters_as_its_kernels(depth, width):
    blocks = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}[depth]
    assert count(f"wresnet-{depth}-{width}") == wresnet_parameters(blocks, width)
    # Depth counts the layers with weights on the longest path.
    assert depth == 3 * sum(blocks) + 2


def test_wresnet_of_width_one_is_the_known_resnet():
    assert wresnet_parameters((3, 4, 6, 3), 1) == 25_557_032


def test_gpt_has_as_many_parameters_as_its_layers():
    units = 1024
    layer = 12 * units**2 + 13 * units  # four projections, two of four times; vectors
    assert count("gpt-24") == 24 * layer + 2 * 50304 * units + 1024 * units + 2 * units


def test_building_allocates_no_tensor():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    graph = models.build("rnn-10-8k")
    weights = 4 * sum(math.prod(shape) for shape, _ in graph.parameters.values())
    assert weights > 19 * 2**30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GIB_IN_KIB


@pytest.mark.parametrize("name", STRUCTURES.values())
def test_a_graph_does_not_depend_on_what_was_built_before(name):
    graphs = [models.build(name, 8, reduced=True) for _ in range(2)]
    assert graphs[0].symbol.tojson() == graphs[1].symbol.tojson()


@pytest.mark.parametrize("name", STRUCTURES.values())
def test_every_operator_of_a_training_graph_is_described(name):
    graph, _, undescribed = planning_problem(name)
    assert undescribed == {}
    heads = graph.head_roles
    parameters = models.build(name, 8, reduced=True).parameters
    assert {f"gradient:{key}" for key in parameters} <= set(heads)
    assert {f"update:{key}" for key in parameters} <= set(heads)


@pytest.mark.whole
def test_a_plan_over_a_thousand_workers_has_a_bound():
    """Some classes of its convolutions have more than 2,048 profiles in ten steps."""
    graph = models.build("alexnet", models.find("alexnet").batch_size).training_graph()
    plan = _core.plan(strategy_table(graph)[0], workers=1024)
    assert 0.9 * plan.total_bytes < plan.lower_bound_bytes < plan.total_bytes


@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize("name", STRUCTURES.values())
def test_every_model_is_planned(name, workers):
    _, table, _ = planning_problem(name)
    plan = Plan.from_json(_core.plan(table, workers=workers).to_json())
    assert math.prod(plan.parts) == workers
    assert plan.status in ("optimal", "steps-optimal")
    assert (plan.status == "optimal") == (plan.total_bytes == plan.lower_bound_bytes)
    assert 0 < plan.lower_bound_bytes <= plan.total_bytes
    assert plan.total_bytes == sum(step.bytes for step in plan.steps)
    assert plan.total_bytes == sum(operator.bytes for operator in plan.operators)
    for parameter, (shape, _) in models.build(name, 8, reduced=True).parameters.items():
        tensor = plan.tensor(parameter)
        assert tensor.shape == shape
        if any(size % workers == 0 for size in shape):
            assert not tensor.replicated


def test_the_mask_feeds_every_layer():
    nodes = json.loads(models.build("transformer", 8, reduced=True).symbol.tojson())["nodes"]
    reach = {i for i, node in enumerate(nodes) if node["name"] == "mask"}
    for i, node in enumerate(nodes):
        if node["op"] != "broadcast_add" and any(source[0] in reach for source in node["inputs"]):
            reach.add(i)
            if node["op"] == "Reshape":
                bias = i
    readers = [node for node in nodes if bias in (source[0] for source in node["inputs"])]
    layers = models.find("transformer").reduced.options["layers"]
    assert [node["op"] for node in readers] == ["broadcast_add"] * (2 * layers)


def test_a_gpt_does_not_look_ahead():
    net = models.create_block(models.find("gpt-24"), reduced=True)
    net.initialize(mx.init.Normal(0.5))
    tokens = np.arange(16).reshape(2, 8)
    changed = tokens.copy()
    changed[:, 5] = 40
    first, second = (net(mx.nd.array(each)).asnumpy() for each in (tokens, changed))
    np.testing.assert_array_equal(first[:, :5], second[:, :5])
    assert not np.allclose(first[:, 5:], second[:, 5:])


def test_a_transformer_does_not_see_padding():
    net = models.create_block(models.find("transformer"), reduced=True)
    net.initialize(mx.init.Normal(0.5))
    source = np.arange(16).reshape(2, 8)
    target, mask = mx.nd.array(source), np.ones((2, 8))
    mask[:, 6:] = 0
    changed = source.copy()
    changed[:, 6:] = 40
    scores = [
        net(mx.nd.array(each), mx.nd.array(seen), target).asnumpy()
        for each, seen in [(source, mask), (changed, mask), (changed, np.ones((2, 8)))]
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.allclose(scores[1], scores[2])


def test_an_unknown_model_is_told_its_neighbours():
    with pytest.raises(ConfigError, match="no model 'wresnet-152-9'; did you mean wresnet-152-"):
        models.find("wresnet-152-9")


def test_a_name_may_be_in_capitals():
    assert models.find("WResNet-152-10").name == "wresnet-152-10"


def test_a_batch_needs_an_example():
    with pytest.raises(ConfigError, match="model mlp: batch size 0, expected at least 1"):
        models.build("mlp", 0)


def test_the_names_are_known_without_mxnet():
    code = "import sys, tofu.models; tofu.models.find('mlp'); print('mxnet' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
