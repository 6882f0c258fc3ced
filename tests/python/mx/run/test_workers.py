"""A dense layer divided by hand over two workers: batch for the data, rows for the weight.

    y = FullyConnected(x, w)    x@i: rows of x    w@i: rows of w    y@i: columns of y

Worker i fetches the whole of x, keeps it for the backward pass, and fetches its columns
of the head gradient, which is divided by rows.
"""

import json
import os
import subprocess
import sys
import types

import mxnet as mx
import numpy as np
import pytest

from tofu import _core
from tofu.dtypes import dtype_name
from tofu.errors import GraphError
from tofu.mx.nnvm import Entry, Graph, Node
from tofu.mx.run.program import Program
from tofu.mx.run.transfer import Tiles, scatter

from ..models import random

BATCH, WIDTH, HIDDEN = 4, 6, 8
CONTEXTS = [mx.cpu(0), mx.cpu(1)]
FLAGS = {"float32": 0, "float64": 1}


def node(op, name, worker, inputs=(), shapes=(), flag=0, **attrs):
    made = Node(op, name, attrs, [Entry(*each) for each in inputs], num_outputs=len(shapes))
    made.attrs["__ctx_group__"] = f"worker{worker}"
    made.shapes, made.dtypes = list(shapes), [flag] * len(shapes)
    return made


def tile(worker, axis, shape, **attrs):
    begin, end = [0] * len(shape), list(shape)
    begin[axis], end[axis] = shape[axis] // 2 * worker, shape[axis] // 2 * (worker + 1)
    return {**attrs, "worker": worker, "begin": begin, "end": end}


def record(role, shape, axis, flag, key, values):
    tiles = [tile(worker, axis, shape, **{key: value}) for worker, value in enumerate(values)]
    return {"role": role, "shape": shape, "dtype": flag, "tiles": tiles}


def variable(name, worker, shape, flag):
    return node("null", f"{name}@{worker}", worker, shapes=[shape], flag=flag)


def phase(heads, records):
    graph = Graph([Entry(*head) for head in heads])
    order = graph.topological()
    attrs = {
        "shape": ["list_shape", [shape for each in order for shape in each.shapes]],
        "dtype": ["list_int", [flag for each in order for flag in each.dtypes]],
    }
    return {"graph": json.loads(graph.to_json(attrs)), "heads": records}


def dense(name, worker, inputs, flag):
    attrs = {"num_hidden": str(HIDDEN // 2), "no_bias": "True"}
    if name == "fc":
        shapes = [(BATCH, HIDDEN // 2)]
        return node("FullyConnected", f"{name}@{worker}", worker, inputs, shapes, flag, **attrs)
    shapes = [(BATCH, WIDTH), (HIDDEN // 2, WIDTH)]
    op = "_backward_FullyConnected"
    return node(op, f"{name}@{worker}", worker, inputs, shapes, flag, **attrs)


def concat(name, worker, parts, shape, flag):
    inputs = [(part, 0) for part in parts]
    return node("Concat", name, worker, inputs, [shape], flag, dim="0", num_args="2")


def phases(dtype="float32"):
    flag, half = FLAGS[dtype], BATCH // 2
    x = [variable("x", i, (half, WIDTH), flag) for i in (0, 1)]
    w = [variable("w", i, (HIDDEN // 2, WIDTH), flag) for i in (0, 1)]
    og = [variable("og", i, (half, HIDDEN), flag) for i in (0, 1)]
    whole = [concat(f"fc@{i}/0", i, x, (BATCH, WIDTH), flag) for i in (0, 1)]
    y = [dense("fc", i, [(whole[i], 0), (w[i], 0)], flag) for i in (0, 1)]
    kept = [node("null", f"fc@{i}/0#0", i, shapes=[(BATCH, WIDTH)], flag=flag) for i in (0, 1)]
    gradients = []
    for i in (0, 1):
        columns = {"begin": f"(0, {HIDDEN // 2 * i})", "end": f"({half}, {HIDDEN // 2 * (i + 1)})"}
        cut = [
            node("slice", f"b@{i}/{j}", j, [(og[j], 0)], [(half, HIDDEN // 2)], flag, **columns)
            for j in (0, 1)
        ]
        mine = concat(f"b@{i}/og", i, cut, (BATCH, HIDDEN // 2), flag)
        gradients.append(dense("b", i, [(mine, 0), (kept[i], 0), (w[i], 0)], flag))
    return {
        "workers": 2,
        "variables": {
            "x": record("data", (BATCH, WIDTH), 0, flag, "name", ["x@0", "x@1"]),
            "w": record("parameter", (HIDDEN, WIDTH), 0, flag, "name", ["w@0", "w@1"]),
            "og": record("head_grad:0", (BATCH, HIDDEN), 0, flag, "name", ["og@0", "og@1"]),
        },
        "forward": phase(
            [(y[0], 0), (y[1], 0), (whole[0], 0), (whole[1], 0)],
            [record("output", (BATCH, HIDDEN), 1, flag, "head", [0, 1])],
        ),
        "backward": phase(
            [(gradients[0], 1), (gradients[1], 1)],
            [record("gradient:w", (HIDDEN, WIDTH), 0, flag, "head", [0, 1])],
        ),
        "saved": [{"name": f"fc@{i}/0#0", "forward_head": 2 + i, "worker": i} for i in (0, 1)],
    }


def step_of(data):
    """The result of tofu._core.schedule for these phases."""
    halves = [half for half in (data["forward"], data["backward"]) if half is not None]
    return types.SimpleNamespace(
        workers=data["workers"],
        variables=[
            (name, each["role"], each["shape"], dtype_name(each["dtype"]), _tiles(each, "name"))
            for name, each in data["variables"].items()
        ],
        is_joint=False,
        graphs=[_core.Graph(json.dumps(half["graph"])) for half in halves],
        forward_heads=_heads(data["forward"]),
        backward_heads=_heads(data["backward"]) if data["backward"] else [],
        saved=[(each["name"], each["forward_head"]) for each in data["saved"]],
    )


def _heads(half):
    return [
        (head["role"], head["shape"], dtype_name(head["dtype"]), _tiles(head, "head"))
        for head in half["heads"]
    ]


def _tiles(each, key):
    return [(tile[key], tuple(tile["begin"]), tuple(tile["end"])) for tile in each["tiles"]]


def weights(dtype="float32"):
    whole = random((HIDDEN, WIDTH), dtype)
    halves = (whole[: HIDDEN // 2], whole[HIDDEN // 2 :])
    return whole, {f"w@{i}": half.copyto(CONTEXTS[i]) for i, half in enumerate(halves)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_workers_compute_what_one_does(dtype):
    w, tiles = weights(dtype)
    program = Program(step_of(phases(dtype)), CONTEXTS, tiles)
    for step in range(3):
        x, og = random((BATCH, WIDTH), dtype, seed=step), random((BATCH, HIDDEN), dtype, seed=step)
        (y,) = program.forward({"x": x}, is_train=True, ctx=mx.cpu())
        np.testing.assert_allclose(y.asnumpy(), mx.nd.dot(x, w.T).asnumpy(), rtol=1e-5)
        mx.nd.waitall()  # no read waits for the backward pass
        gradient = program.backward([og])["w"]
        expected = mx.nd.dot(og.T, x).asnumpy()
        found = np.concatenate([each.asnumpy() for each in gradient])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert [each.context for each in gradient] == CONTEXTS


def test_parameters_are_bound_where_they_lie():
    _, tiles = weights()
    program = Program(step_of(phases()), CONTEXTS, tiles)
    for each in tiles.values():
        each[:] = 0
    (y,) = program.forward({"x": random((BATCH, WIDTH))}, is_train=False, ctx=mx.cpu(1))
    assert not y.asnumpy().any()
    assert y.context == mx.cpu(1)


def test_inputs_may_be_tiles():
    """Inputs and head gradients may be tiles, copied or bound in place."""
    _, tiles = weights()
    x, og = random((BATCH, WIDTH)), random((BATCH, HIDDEN))
    program = Program(step_of(phases()), CONTEXTS, tiles)
    (expected,) = program.forward({"x": x}, is_train=True, ctx=mx.cpu())
    of_x, of_y = program.layouts["x"], program.forward_tiles({"x": x}, is_train=True)[0].layout
    divided = Tiles(scatter(x, of_x, CONTEXTS), of_x)
    data = {name: divided.arrays[i] for i, name in enumerate(("x@0", "x@1"))}
    for given in ({}, data):
        program = Program(step_of(phases()), CONTEXTS, {**tiles, **given})
        (found,) = program.forward({"x": divided}, is_train=True, ctx=mx.cpu())
        np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy())
        whole = [each.asnumpy() for each in program.backward([og])["w"]]
        heads = Tiles(scatter(og, of_y, CONTEXTS), of_y)
        for one, other in zip(program.backward([heads])["w"], whole):
            np.testing.assert_array_equal(one.asnumpy(), other)
    with pytest.raises(GraphError, match="variable 'x': found other arrays, expected the tiles"):
        program.forward({"x": x}, is_train=True, ctx=mx.cpu())


def test_the_optimizers_states_are_none_of_its_business():
    data = phases()
    data["variables"]["w:mom"] = record("state:w", (HIDDEN, WIDTH), 0, 0, "name", ["m@0", "m@1"])
    program = Program(step_of(data), CONTEXTS, weights()[1])
    assert program.layouts["w:mom"].boxes == program.layouts["w"].boxes


def test_an_edge_between_workers_is_copied_once():
    _, tiles = weights()
    program = Program(step_of(phases()), CONTEXTS, tiles)
    assert program._halves._forward.debug_str().count("_CrossDeviceCopy") == 2
    assert program._halves._backward.debug_str().count("_CrossDeviceCopy") == 2


def test_a_missing_head_gradient_counts_as_zero():
    _, tiles = weights()
    program = Program(step_of(phases()), CONTEXTS, tiles)
    program.forward({"x": random((BATCH, WIDTH))}, is_train=True, ctx=mx.cpu())
    assert not any(each.asnumpy().any() for each in program.backward([None])["w"])


def test_a_missing_head_gradient_counts_as_zero_after_a_given_one_too():
    _, tiles = weights()
    program = Program(step_of(phases()), CONTEXTS, tiles)
    for heads, is_zero in (([random((BATCH, HIDDEN))], False), ([None], True)):
        program.forward({"x": random((BATCH, WIDTH))}, is_train=True, ctx=mx.cpu())
        found = [each.asnumpy().any() for each in program.backward(heads)["w"]]
        assert found == [not is_zero] * len(found)


def test_gradients_divided_otherwise_are_divided_as_their_variable():
    data = phases()
    head = data["backward"]["heads"][0]
    head["tiles"].reverse()  # worker 0 has made what worker 1 owns
    for worker, each in enumerate(head["tiles"]):
        each["worker"] = worker
    _, tiles = weights()
    program = Program(step_of(data), CONTEXTS, tiles)
    x, og = random((BATCH, WIDTH)), random((BATCH, HIDDEN))
    program.forward({"x": x}, is_train=True, ctx=mx.cpu())
    found = np.concatenate([each.asnumpy() for each in program.backward([og])["w"]])
    np.testing.assert_allclose(found, mx.nd.dot(og.T, x).asnumpy(), rtol=1e-5, atol=1e-6)


def broken(change):
    data = phases()
    change(data)
    return step_of(data)


def without_group(data):
    del data["backward"]["graph"]["nodes"][3]["attrs"]["__ctx_group__"]


def with_strange_group(data):
    data["forward"]["graph"]["nodes"][0]["attrs"]["__ctx_group__"] = "worker2"


def with_unknown_operator(data):
    data["forward"]["graph"]["nodes"][-1]["op"] = "FullyDisconnected"


def with_wrong_shapes(data):
    data["forward"]["graph"]["nodes"][-1]["attrs"]["num_hidden"] = "5"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_group, r"backward graph, node '.*': found no context group, expected one of"),
        (with_strange_group, r"forward graph, node 'x@0': found context group 'worker2'"),
        (with_unknown_operator, "loading the forward graph: MXNet refused"),
        (with_wrong_shapes, "binding the forward graph: MXNet refused"),
        (lambda data: data.update(workers=3), "partitioned over 3 workers, but 2 contexts"),
        (lambda data: data["saved"].pop(), "backward graph, variable 'fc@1/0#0': found no array"),
    ],
)
def test_a_faulty_step_is_refused(change, message):
    with pytest.raises(GraphError, match=message):
        Program(broken(change), CONTEXTS, weights()[1])


def test_tiles_must_fit():
    _, tiles = weights()
    with pytest.raises(GraphError, match="tile 'w@1' of parameter 'w': found none"):
        Program(step_of(phases()), CONTEXTS, {"w@0": tiles["w@0"]})
    wrong = {name: each.astype("float64") for name, each in tiles.items()}
    with pytest.raises(GraphError, match=r"found \(\(4, 6\), 'float64'\), expected \(\(4, 6\), 'f"):
        Program(step_of(phases()), CONTEXTS, wrong)
    moved = {name: each.copyto(mx.cpu(0)) for name, each in tiles.items()}
    with pytest.raises(GraphError, match=r"variable 'w@1': found an array on cpu\(0\), expected"):
        Program(step_of(phases()), CONTEXTS, moved)


def test_inputs_must_be_there_and_fit():
    program = Program(step_of(phases()), CONTEXTS, weights()[1])
    with pytest.raises(GraphError, match=r"forward: input 'x' is missing; got \['z'\]"):
        program.forward({"z": random((BATCH, WIDTH))}, is_train=True, ctx=mx.cpu())
    with pytest.raises(GraphError, match=r"variable 'x': scatter: found an array of shape \(3, 6"):
        program.forward({"x": random((3, WIDTH))}, is_train=True, ctx=mx.cpu())


def test_a_graph_without_gradients_has_no_backward():
    data = phases()
    data.update(backward=None, saved=[])
    program = Program(step_of(data), CONTEXTS, weights()[1])
    program.forward({"x": random((BATCH, WIDTH))}, is_train=False, ctx=mx.cpu())
    with pytest.raises(GraphError, match="made without gradients"):
        program.backward([])


def test_the_naive_engine_runs_it_too():
    environment = {**os.environ, "MXNET_ENGINE_TYPE": "NaiveEngine"}
    test = f"{__file__}::test_two_workers_compute_what_one_does"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
