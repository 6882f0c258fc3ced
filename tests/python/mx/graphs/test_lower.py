"""Every lowering in a training step, compared with MXNet's own operator."""

import json

import mxnet as mx
import numpy as np
import pytest

from tofu.mx.graphs.lower import AFTER, BEFORE, STAGES
from tofu.mx.graphs.training_graph import training_graph

from ..models import random
from ..whole import graph_of, own_gradients, shapes_of, train

sym = mx.sym


def operators(symbol, inputs, parameters, aux=None, **options):
    graph = graph_of(symbol, inputs, parameters, aux, **options)
    return {node["op"] for node in json.loads(graph.to_json())["nodes"]}


def assert_equal(
    symbol, inputs, parameters, aux=None, *, tolerance=1e-10, steps=1, heads=None, **options
):
    if heads is None:
        _, shapes, _ = symbol.infer_shape(
            **{name: array.shape for name, array in {**inputs, **parameters}.items()}
        )
        dtype = next(iter(parameters.values())).dtype
        heads = [random(shape, dtype, seed=i) for i, shape in enumerate(shapes)]
    own = own_gradients(symbol, inputs, parameters, aux, head_gradients=heads, steps=steps)
    options["steps"] = steps
    ours = train(symbol, inputs, parameters, aux, head_gradients=heads, **options)
    for found, expected, name in pairs(ours, own):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)
    if any(array.dtype == np.float64 for array in parameters.values()):
        # In single precision MXNet uses oneDNN's operators; compare those with these results.
        single = [in_single(arrays) for arrays in (inputs, parameters, aux or {})]
        heads = [head.astype("float32") for head in heads]
        ours = train(symbol, *single, head_gradients=heads, **options)
        for found, expected, name in pairs(ours, own):
            scale = max(1.0, abs(expected).max())
            np.testing.assert_allclose(
                found / scale, expected / scale, rtol=0, atol=SINGLE, err_msg=name
            )


SINGLE = 1e-5


def in_single(arrays):
    return {
        name: array.astype("float32") if array.dtype == np.float64 else array
        for name, array in arrays.items()
    }


def pairs(ours, own):
    """Outputs, gradients and auxiliary states of two runs, with their names."""
    assert [len(mine) for mine in ours] == [len(theirs) for theirs in own]
    for number, (found, expected) in enumerate(zip(ours[0], own[0])):
        yield found, expected, f"output {number}"
    for mine, theirs in zip(ours[1:], own[1:]):
        assert mine.keys() == theirs.keys()
        for name, expected in theirs.items():
            yield mine[name], expected, name


def batch_norm_case(shape, dtype, **options):
    channels = shape[options.get("axis", 1)]
    names = ("gamma", "beta", "moving_mean", "moving_var")
    symbol = sym.BatchNorm(sym.var("x"), *(sym.var(name) for name in names), name="norm", **options)
    vector = {name: random((channels,), dtype, seed=i) for i, name in enumerate(names)}
    vector["moving_var"] = mx.nd.abs(vector["moving_var"]) + 0.5
    if options.get("fix_gamma", True):
        vector["gamma"] = mx.nd.ones_like(vector["gamma"])
    parameters = {"x": random(shape, dtype), "gamma": vector["gamma"], "beta": vector["beta"]}
    return symbol, parameters, {name: vector[name] for name in names[2:]}


BATCH_NORMS = {
    "default": {},
    "gamma": {"fix_gamma": False},
    "eps and momentum": {"fix_gamma": False, "eps": 0.1, "momentum": 0.3},
    "global statistics": {"fix_gamma": False, "use_global_stats": True},
    "last axis": {"fix_gamma": False, "axis": -1},
    "axis 2": {"fix_gamma": False, "axis": 2},
}


FORMS = {
    "for CPUs": {},
    "for GPUs": {"on_gpus": True},
    "whole": {"fused": ["norm"]},
    "whole, for GPUs": {"fused": ["norm"], "on_gpus": True},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", BATCH_NORMS)
@pytest.mark.parametrize("shape", [(4, 3, 5, 2), (6, 3, 7)], ids=str)
def test_batch_norm(name, shape, form):
    symbol, parameters, aux = batch_norm_case(shape, "float64", **BATCH_NORMS[name])
    assert_equal(symbol, {}, parameters, aux, steps=3, **FORMS[form])
    found = operators(symbol, {}, parameters, aux, **FORMS[form])
    # With given statistics the norm is a product and a sum, which may be split in any way.
    whole = "fused" in FORMS[form] and name != "global statistics"
    assert ({"BatchNorm", "_backward_BatchNorm"} <= found) == whole
    is_image = len(shape) == 4 and "axis" not in BATCH_NORMS[name]
    assert ("Convolution" in found) == (is_image and "GPUs" not in form and not whole)


@pytest.mark.parametrize("on_gpus", [False, True])
def test_a_whole_batch_norm_changes_no_variable_of_the_graph(on_gpus):
    """MXNet's operator writes the running statistics, and gamma if it counts as one."""
    symbol, parameters, aux = batch_norm_case((4, 3, 5, 2), "float32", fix_gamma=False)
    graph = graph_of(symbol, {}, parameters, aux, on_gpus=on_gpus, fused=["norm"])
    nodes = json.loads(graph.to_json())["nodes"]
    written = {"BatchNorm": (3, 4), "_backward_BatchNorm": (6, 7)}
    for node in nodes:
        for number in written.get(node["op"], ()):
            assert nodes[node["inputs"][number][0]]["op"] == "_zeros"
        if node["op"] in written:
            assert node["attrs"]["fix_gamma"] == "False"


def test_batch_norm_of_images_broadcasts_nothing():
    """MXNet's broadcasting operators take many times as long as reading the memory does."""
    symbol, parameters, aux = batch_norm_case((4, 3, 5, 2), "float32", fix_gamma=False)
    found = operators(symbol, {}, parameters, aux)
    assert not {op for op in found if "broadcast" in op}
    assert {"Convolution", "Pooling", "_backward_Convolution"} <= set(found)


FROZEN = {  # trained variables besides the weight after the BatchNorm, and the updating operator
    "nothing of it": ((), set()),
    "data": (("x",), {"moving_mean", "moving_var"}),
    "beta": (("beta",), {"moving_mean", "moving_var"}),
}


@pytest.mark.parametrize("name", FROZEN)
@pytest.mark.parametrize("shape", [(4, 3, 5, 2), (9, 3)], ids=str)
def test_running_statistics_where_no_gradient_passes(name, shape):
    """On CPUs MXNet's backward operator updates them, on GPUs cuDNN's forward operator."""
    trained, updated = FROZEN[name]
    norm, arrays, aux = batch_norm_case(shape, "float64", fix_gamma=False)
    symbol = sym.FullyConnected(norm, sym.var("w"), no_bias=True, num_hidden=2)
    width = int(np.prod(shape[1:]))
    parameters = {"w": random((2, width), "float64"), **{n: arrays[n] for n in trained}}
    inputs = {n: array for n, array in arrays.items() if n not in trained}
    assert_equal(symbol, inputs, parameters, aux, steps=2)
    _, _, states = train(symbol, inputs, parameters, aux)
    changed = {n for n, value in states.items() if not np.array_equal(value, aux[n].asnumpy())}
    assert changed == updated
    heads = graph_of(symbol, inputs, parameters, aux, on_gpus=True).head_roles
    assert {"aux:moving_mean", "aux:moving_var"} < set(heads)


def test_batch_norms_in_a_row_and_a_shared_input():
    def norm(name, data):
        return sym.BatchNorm(data, name=name, fix_gamma=False)

    x = sym.var("x")
    symbol = norm("b", norm("a", x)) + x
    names = [f"{name}_{part}" for name in "ab" for part in ("gamma", "beta")]
    parameters = {n: random((3,), "float64", seed=7) for n in names}
    parameters["x"] = random((4, 3, 5, 2), "float64")
    aux = {
        f"{name}_moving_{part}": mx.nd.ones((3,), dtype="float64")
        for name in "ab"
        for part in ("mean", "var")
    }
    assert_equal(symbol, {}, parameters, aux, steps=2)


def test_batch_norm_of_a_matrix():
    symbol, parameters, aux = batch_norm_case((9, 5), "float64", fix_gamma=False)
    assert_equal(symbol, {}, parameters, aux)


def test_batch_norm_with_mean_and_variance_outputs():
    symbol, parameters, aux = batch_norm_case(
        (4, 3, 5, 2), "float64", fix_gamma=False, output_mean_var=True
    )
    assert_equal(symbol, {}, parameters, aux)


def test_batch_norm_in_half_precision_keeps_its_statistics_in_single():
    symbol, parameters, aux = batch_norm_case((4, 3, 5, 2), "float32", fix_gamma=False)
    parameters["x"] = parameters["x"].astype("float16")
    heads = [random((4, 3, 5, 2), "float16")]
    (out,), gradients, _ = train(symbol, {}, parameters, aux, head_gradients=heads)
    assert out.dtype == gradients["x"].dtype == np.float16
    assert gradients["gamma"].dtype == np.float32
    # Computes with the same numbers in single precision, and rounds only the results to half.
    parameters["x"], heads = parameters["x"].astype("float32"), [heads[0].astype("float32")]
    (own,), own_gradient, _ = own_gradients(symbol, {}, parameters, aux, head_gradients=heads)
    half = {"rtol": 2.0**-11, "atol": 1e-6}
    np.testing.assert_allclose(out, own, **half)
    np.testing.assert_allclose(gradients["x"], own_gradient["x"], **half)
    for name in ("gamma", "beta"):
        np.testing.assert_allclose(gradients[name], own_gradient[name], rtol=1e-5, atol=1e-5)


def test_batch_norm_with_relu():
    names = ("gamma", "beta", "moving_mean", "moving_var")
    symbol = sym.contrib.BatchNormWithReLU(
        sym.var("x"), *(sym.var(name) for name in names), fix_gamma=False
    )
    _, parameters, aux = batch_norm_case((4, 16, 5, 2), "float32", fix_gamma=False)
    assert_equal(symbol, {}, parameters, aux, tolerance=1e-5)


@pytest.mark.parametrize("eps", [0.001, 0.5])
@pytest.mark.parametrize("all_outputs", [False, True], ids=["out", "out, mean and variance"])
def test_sync_batch_norm_counts_the_whole_batch(all_outputs, eps):
    names = ("gamma", "beta", "moving_mean", "moving_var")
    variables = [sym.var(name) for name in names]
    options = {"key": "a", "fix_gamma": False, "eps": eps, "output_mean_var": all_outputs}
    symbol = sym.contrib.SyncBatchNorm(sym.var("x"), *variables, **options)
    _, parameters, aux = batch_norm_case((4, 3, 5, 2), "float32", fix_gamma=False)
    if not all_outputs:
        assert_equal(symbol, {}, parameters, aux, tolerance=1e-5)
        return
    # If the statistics are read, MXNet has no gradient: compare only its outputs.
    outputs, _, _ = train(symbol, {}, parameters, aux)
    own, _, _ = own_gradients(symbol, {}, parameters, aux)
    assert len(outputs) == len(own) == 3
    for found, expected in zip(outputs, own):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    x = parameters["x"].asnumpy()
    np.testing.assert_allclose(outputs[1], x.mean(axis=(0, 2, 3)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs[2], x.var(axis=(0, 2, 3)), rtol=1e-5, atol=1e-6)


def test_a_mean_in_half_precision_of_many_is_added_up_in_single():
    """Half precision cannot represent a sum of 70,000 ones."""
    parameters = {"x": mx.nd.ones((2, 70_000), dtype="float16")}
    symbol = sym.mean(sym.var("x"), axis=1)
    heads = [mx.nd.ones((2,), dtype="float16")]
    (out,), gradients, _ = train(symbol, {}, parameters, head_gradients=heads)
    assert out.dtype == gradients["x"].dtype == np.float16
    np.testing.assert_array_equal(out, 1)
    np.testing.assert_allclose(gradients["x"], 1 / 70_000, rtol=1e-2)


def test_predict_mode_uses_running_statistics_and_drops_dropout():
    symbol, parameters, aux = batch_norm_case((4, 3, 5, 2), "float64", fix_gamma=False)
    graph = training_graph(
        sym.Dropout(symbol, p=0.5),
        inputs=shapes_of({"x": parameters["x"]}),
        parameters=shapes_of({name: parameters[name] for name in ("gamma", "beta")}),
        aux=shapes_of(aux),
        gradients=[],
        train=False,
    )
    found = json.loads(graph.to_json())
    assert found["attrs"]["tofu_heads"] == ["list_str", ["output"]]
    (norm,) = (node for node in found["nodes"] if node["op"] != "null")
    assert norm["op"] == "BatchNorm" and norm["attrs"]["use_global_stats"] == "True"


def places():
    """Indices of three elements of the first two dimensions, one of them twice."""
    rows = sym.arange(3) > 0
    columns = (sym.arange(3) < 1) * 2
    return sym.stack(rows, columns, axis=0)


PARTS = {
    "places": lambda x: sym.gather_nd(x, sym.BlockGrad(places())),
    "places of a lowered operator": lambda x: sym.gather_nd(
        sym.mean(x, axis=3), sym.BlockGrad(places())
    ),
    "places twice": lambda x: sym.gather_nd(x, places()) * sym.gather_nd(x * x, places()),
    "mean over all": lambda x: sym.mean(x),
    "mean over one": lambda x: sym.mean(x, axis=1),
    "mean over others": lambda x: sym.mean(x, axis=(1,), exclude=True, keepdims=True),
    "div_sqrt_dim": lambda x: sym.contrib.div_sqrt_dim(x),
    "split": lambda x: sym.Group(list(sym.split(x, num_outputs=2, axis=2))),
    "split and squeeze": lambda x: sym.concat(
        *sym.split(x, num_outputs=4, axis=2, squeeze_axis=True), dim=0
    ),
    "split, one part unused": lambda x: sym.split(x, num_outputs=2, axis=2)[1] * 2,
    "split into one": lambda x: sym.split(x, num_outputs=1, axis=0),
    "swap axes": lambda x: sym.SwapAxis(x, dim1=0, dim2=3),
    "pad": lambda x: sym.Pad(x, mode="constant", pad_width=(0, 0, 0, 0, 1, 2, 3, 0)),
    "instance normalized": lambda x: sym.L2Normalization(x),
    "channels normalized": lambda x: sym.L2Normalization(x, mode="channel"),
    "space normalized": lambda x: sym.L2Normalization(x, mode="spatial"),
    "no gradient": lambda x: x * sym.BlockGrad(sym.square(x)),
    "index of the largest": lambda x: sym.broadcast_mul(x, sym.argmax(x, axis=1, keepdims=True)),
    "loss": lambda x: sym.MakeLoss(sym.square(x), grad_scale=3.0),
    "loss of a batch": lambda x: sym.MakeLoss(sym.square(x), normalization="batch"),
}


@pytest.mark.parametrize("name", PARTS)
def test_part(name):
    symbol = PARTS[name](sym.var("x") + 0)
    # InstanceNorm and L2Normalization compute in single precision.
    assert_equal(symbol, {}, {"x": random((2, 3, 4, 5), "float64")}, tolerance=1e-9)


def test_the_gradient_of_one_normalized_value_is_as_plain():
    """It is 0 but for what is added to the square, or a rounding."""
    x = random((64, 1), "float32")
    assert_equal(sym.L2Normalization(sym.var("x") * 1), {}, {"x": x}, tolerance=0)


def test_an_output_that_appears_twice_has_two_head_gradients():
    x, heads = random((2, 3)), [random((2, 3), seed=1), random((2, 3), seed=2)]
    doubled = sym.var("x") * 2
    outputs, gradients, _ = train(
        sym.Group([doubled, doubled, sym.var("x")]), {}, {"x": x}, head_gradients=[*heads, x]
    )
    np.testing.assert_allclose(outputs[1], 2 * x.asnumpy())
    expected = 2 * (heads[0] + heads[1]) + x  # MXNet's own executor loses the first
    np.testing.assert_allclose(gradients["x"], expected.asnumpy(), rtol=1e-6)


def test_instance_norm():
    symbol = sym.InstanceNorm(sym.var("x"), sym.var("gamma"), sym.var("beta"))
    parameters = {"x": random((2, 3, 4, 5)), "gamma": random((3,)), "beta": random((3,))}
    assert_equal(symbol, {}, parameters, tolerance=1e-5)


@pytest.mark.parametrize("op", [sym.SequenceMask, sym.SequenceReverse])
@pytest.mark.parametrize("lengths", [True, False])
def test_sequence_operators(op, lengths):
    # Products on both sides put the operator inside the graph.
    options = {"value": 3.0} if op is sym.SequenceMask else {}
    arguments = (sym.var("x") * 2, sym.var("lengths")) if lengths else (sym.var("x") * 2,)
    symbol = sym.square(op(*arguments, use_sequence_length=lengths, **options))
    inputs = {"lengths": mx.nd.array([1, 4, 2])} if lengths else {}
    assert_equal(symbol, inputs, {"x": random((5, 3, 2))}, tolerance=1e-6)


@pytest.mark.parametrize("axes", [(), (0, 2)], ids=["all", "shared"])
def test_dropout_multiplies_the_gradient_with_its_mask(axes):
    x = mx.nd.ones((4, 60, 4))
    symbol = sym.Dropout(sym.var("x") * 2, p=0.25, axes=axes)
    heads = [random(x.shape)]
    (out,), gradients, _ = train(symbol, {}, {"x": x}, head_gradients=heads)
    mask = out / 2
    assert set(np.round(np.unique(mask), 5)) <= {0.0, np.float32(1.33333)}
    assert 0.5 < (mask > 0).mean() < 1
    np.testing.assert_allclose(gradients["x"], 2 * mask * heads[0].asnumpy(), rtol=1e-6)


def test_dropout_draws_in_single_precision_and_waits_in_half():
    graph = json.loads(
        graph_of(sym.Dropout(sym.var("x") * 2), {}, {"x": random((4, 60))}).to_json()
    )
    dtypes, rows = graph["attrs"]["dtype"][1], graph["node_row_ptr"]
    made = {node["op"]: dtypes[rows[number]] for number, node in enumerate(graph["nodes"])}
    single, half = 0, 2
    assert made["_random_uniform"] == made["_lesser_scalar"] == single
    (mask,) = (number for number, row in enumerate(rows[:-1]) if dtypes[row] == half)
    readers = [
        node["op"] for node in graph["nodes"] if mask in (entry[0] for entry in node["inputs"])
    ]
    assert readers == ["Cast", "Cast"]  # forward and backward


def test_dropout_that_drops_nothing_is_left_out():
    assert "_random_uniform" not in operators(
        sym.Dropout(sym.var("x"), p=0), {}, {"x": random((2, 3))}
    )


def test_softmax_output_divides_by_the_whole_batch():
    symbol = sym.SoftmaxOutput(
        sym.var("x") * 2, sym.var("label"), normalization="batch", grad_scale=3
    )
    inputs, parameters = {"label": mx.nd.array([1, 4, 2])}, {"x": random((3, 5))}
    assert_equal(symbol, inputs, parameters, tolerance=1e-6)
    graph = training_graph(
        symbol,
        inputs=shapes_of(inputs),
        parameters=shapes_of(parameters),
        aux={},
        gradients=["x"],
        train=True,
    )
    (node,) = [
        n for n in json.loads(graph.to_json())["nodes"] if n["op"] == "_backward_SoftmaxOutput"
    ]
    assert (node["attrs"]["normalization"], node["attrs"]["grad_scale"]) == ("null", "1.0")


def test_the_gradient_of_an_embedding_is_dense():
    table = {"w": random((7, 3))}
    options = {"input_dim": 7, "output_dim": 3}
    words = {"words": mx.nd.array([[1, 3], [6, 1]])}
    symbol = sym.Embedding(sym.var("words"), sym.var("w"), sparse_grad=True, **options)
    heads = [random((2, 2, 3))]
    ours = train(symbol, words, table, head_gradients=heads)
    dense = sym.Embedding(sym.var("words"), sym.var("w"), **options)
    own = own_gradients(dense, words, table, head_gradients=heads)
    np.testing.assert_allclose(ours[1]["w"], own[1]["w"], rtol=1e-6)


def test_the_gradient_of_an_embedding_by_its_tokens_is_zero():
    """MXNet asks for it where a net computes the tokens while autograd records."""
    symbol = sym.Embedding(sym.var("words"), sym.var("w"), input_dim=7, output_dim=3)
    words, table = mx.nd.array([[1, 3], [6, 1]]), {"w": random((7, 3))}
    _, found, _ = train(symbol, {}, {"words": words, **table})
    _, own, _ = own_gradients(symbol, {"words": words}, table)
    np.testing.assert_allclose(found["w"], own["w"], rtol=1e-6)
    np.testing.assert_array_equal(found["words"], np.zeros((2, 2)))


@pytest.mark.parametrize("options", [{"stride": (2, 2)}, {"pad": (1, 1)}, {"global_pool": True}])
def test_the_gradient_of_a_maximum_reads_no_workspace(options):
    symbol = sym.Pooling(sym.var("x"), kernel=(2, 2), pool_type="max", **options)
    parameters = {"x": random((3, 2, 6, 6))}
    assert_equal(symbol, {}, parameters, tolerance=1e-6)
    graph = training_graph(
        symbol, inputs={}, parameters=shapes_of(parameters), aux={}, gradients=["x"], train=True
    )
    nodes = json.loads(graph.to_json())["nodes"]
    (node,) = [n for n in nodes if n["op"] == "_backward_Pooling"]
    assert ("Pooling", 1) not in [(nodes[i]["op"], k) for i, k, *_ in node["inputs"]]
    # The backward pass keeps nothing in double precision.
    casts = [nodes[i] for i, *_ in node["inputs"][2:4]]
    assert [each["op"] for each in casts] == ["Cast", "Cast"]
    sources = [nodes[each["inputs"][0][0]] for each in casts]
    assert sources[0]["name"] == "x"
    assert (sources[1]["op"], sources[1]["attrs"]["dtype"]) == ("Cast", "float32")


UNREACHED = {
    "constant": lambda x, w: sym.relu(x) + sym.BlockGrad(sym.dot(x, w)),
    "index": lambda x, w: sym.broadcast_add(x, sym.argmax(sym.dot(x, w), axis=1, keepdims=True)),
    "half": lambda x, w: sym.dot(x, w) + sym.BlockGrad(sym.dot(x, sym.var("v") * w)),
}


@pytest.mark.parametrize("name", UNREACHED)
def test_a_parameter_that_no_gradient_reaches_has_zeros(name):
    symbol = UNREACHED[name](sym.var("x"), sym.var("w"))
    parameters = {"x": random((4, 4), "float64"), "w": random((4, 4), "float64", seed=1)}
    if name == "half":
        parameters["v"] = random((4, 4), "float64", seed=2)
    head = [random((4, 4), "float64", seed=3)]
    _, gradients, _ = train(symbol, {}, parameters, head_gradients=head)
    assert gradients.keys() == parameters.keys()
    assert gradients["x"].any()
    assert not gradients["v" if name == "half" else "w"].any()
    assert_equal(symbol, {}, parameters)


def test_a_sum_that_mxnet_would_make_in_place_is_an_ordinary_one():
    x = sym.var("x")
    total = sym._internal._grad_add(sym.sin(x), sym.cos(x))
    graph = training_graph(
        total, inputs={"x": ((2, 3), "float32")}, parameters={}, aux={}, gradients=[], train=False
    )
    assert [n["op"] for n in json.loads(graph.to_json())["nodes"]] == [
        "null",
        "sin",
        "cos",
        "elemwise_add",
    ]


def test_every_lowering_says_why():
    for lowering in [*STAGES, *BEFORE, *AFTER]:
        assert len(lowering.reason) > 20, lowering.op
