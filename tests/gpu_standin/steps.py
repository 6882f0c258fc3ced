"""Runs one function of a test of this folder in a separate process.

FAKE_GPUS=4 python steps.py FUNCTION [ARGUMENT...]

Prints the function's result as the last line, as JSON.
"""

import collections
import ctypes
import gc
import importlib.util
import json
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

from tofu import _core
from tofu.errors import GraphError
from tofu.gluon.session.session import looking
from tofu.mx.extension import load, mxnet_errors
from tofu.mx.nnvm import VARIABLE, Entry, Graph, Node
from tofu.mx.run import executor
from tofu.mx.run.fetch_check import usable_fetch
from tofu.mx.run.program import Program

ROOT = Path(__file__).resolve().parents[2]
RUNTIME_CALLS = ("cudaStreamSynchronize", "cudaMemcpyPeerAsync", "cudaMemsetAsync")
DRIVER_CALLS = ("cuLaunchKernel",)
# CUDA's number of an error after which a device still works: out of resources for a launch.
LAUNCH_FAILS = 701
DTYPES = ("float32", "float64", "float16")  # by MXNet's flag
STEPS = 2
FAULTS = 12
# Fetches of two remote tiles and a local one, each of (4, 6) elements; dtypes are MXNet's.
_TILES = "sources=4,6;4,6;4,6; pieces="
_ROWS = "0@0,0>0,0:4,6;1@0,0>4,0:4,6;2@0,0>8,0:4,6"
_TERMS = "0@0,0>0,0:4,6;1@0,0>0,0:4,6#1;2@0,0>0,0:4,6#2"
SPECS = {
    "rows": f"dtype=0 shape=12,6 {_TILES}{_ROWS}",
    "rows of float64": f"dtype=1 shape=12,6 {_TILES}{_ROWS}",
    "rows of float16": f"dtype=2 shape=12,6 {_TILES}{_ROWS}",
    "columns": f"dtype=0 shape=4,18 {_TILES}0@0,0>0,0:4,6;1@0,0>0,6:4,6;2@0,0>0,12:4,6",
    "parts": f"dtype=0 shape=3,5 {_TILES}0@1,1>0,0:3,2;1@0,3>0,2:3,2;2@1,5>0,4:3,1",
    "halo with fill": f"dtype=0 shape=6,7 fill=1 {_TILES}"
    "-@>0,0:1,7;-@>1,0:4,1;0@0,0>1,1:4,6;1@0,0>5,0:1,6;-@>5,6:1,1",
    **{
        f"{reduce} of float32": f"dtype=0 shape=4,6 reduce={reduce} terms=3 {_TILES}{_TERMS}"
        for reduce in ("sum", "prod", "max", "min")
    },
    "sum of float64": f"dtype=1 shape=4,6 reduce=sum terms=3 {_TILES}{_TERMS}",
}


def contexts():
    return [mx.gpu(device) for device in range(mx.context.num_gpus())]


class Library:
    """A stand-in, with its counts and failures."""

    def __init__(self, name, prefix):
        library = ctypes.CDLL(name)
        self._calls = getattr(library, f"{prefix}Calls")
        self._calls.restype = ctypes.c_longlong
        self._fails = getattr(library, f"{prefix}Fails")

    def calls(self, name):
        return self._calls(name.encode())

    def fail(self, name, after=0, error=LAUNCH_FAILS):
        self._fails(name.encode(), after, error)


def runtime():
    return Library("libcudart.so.11.0", "FakeRuntime")


def driver():
    return Library("libcuda.so.1", "FakeDriver")


def counts():
    return {
        **{name: runtime().calls(name) for name in RUNTIME_CALLS},
        **{name: driver().calls(name) for name in DRIVER_CALLS},
    }


def pending_error():
    """Return the error that waitall raises, or None."""
    try:
        mx.nd.waitall()
    except mx.base.MXNetError as error:
        return str(error)
    return None


def self_test():
    fetch = usable_fetch("multifetch", contexts())
    return {
        **fetch._asdict(),
        "pending": pending_error(),
        "calls": counts(),
    }


def two_sessions():
    """The fetch of each of two groups of two GPUs."""
    of = contexts()
    fetches = (usable_fetch("multifetch", of[:2]), usable_fetch("multifetch", of[2:]))
    return [[fetch.kind, fetch.reason] for fetch in fetches]


def failing_self_test(call):
    """Let a call of the driver fail on one of the GPUs."""
    driver().fail(call, after=1)
    return self_test()


def _fetch_graph(spec, of):
    """Worker 2 fetches from the tiles of all three workers."""
    dtype = int(spec.split()[0].partition("=")[2])
    shape = tuple(map(int, spec.split()[1].partition("=")[2].split(",")))
    tiles = [_node(VARIABLE, f"tile{w}", w, [], [(4, 6)], [dtype]) for w in range(3)]
    attrs = {"spec": spec, "label": "of rows", "__direct__": "1"}
    inputs = [Entry(tile) for tile in tiles]
    graph = Graph([Entry(_node("_tofu_multifetch", "fetch", 2, inputs, [shape], [dtype], **attrs))])
    order = graph.topological()
    attrs = {
        "shape": ["list_shape", [shape for node in order for shape in node.shapes]],
        "dtype": ["list_int", [dtype for node in order for dtype in node.dtypes]],
    }
    rng = np.random.default_rng(5)
    arrays = {
        f"tile{worker}": mx.nd.array(rng.integers(-4, 5, (4, 6)), context, DTYPES[dtype])
        for worker, context in enumerate(of)
    }
    document = _core.Graph(graph.to_json(attrs))
    return executor.bind("fetch", document, of, arrays), arrays


def _node(op, name, worker, inputs, shapes, dtypes, **attrs):
    node = Node(op, name, attrs, inputs, num_outputs=len(shapes), shapes=shapes, dtypes=dtypes)
    node.attrs["__ctx_group__"] = f"worker{worker}"
    return node


def fetches():
    """Kinds of fetches whose values on GPUs differ from those on CPU contexts."""
    load()
    wrong = []
    for kind, spec in SPECS.items():
        on_gpus, _ = _fetch_graph(spec, contexts()[:3])
        on_cpus, _ = _fetch_graph(spec, [mx.cpu(0), mx.cpu(1), mx.cpu(2)])
        for _ in range(STEPS):
            found, expected = (each.forward()[0].asnumpy() for each in (on_gpus, on_cpus))
            if found.dtype != expected.dtype or not np.array_equal(found, expected):
                wrong.append(kind)
    return {"wrong": wrong, "kinds": len(SPECS), "pending": pending_error()}


def failing_launches():
    """The outcomes of a step in which a launch fails, of waitall after it, and of the next step."""
    load()
    on_gpus, arrays = _fetch_graph(SPECS["rows"], contexts()[:3])
    expected = np.concatenate([array.asnumpy() for array in arrays.values()])
    on_gpus.forward()[0].wait_to_read()
    driver().fail("cuLaunchKernel")
    error = None
    try:
        with mxnet_errors("running a step"):
            on_gpus.forward()[0].asnumpy()
    except GraphError as caught:
        error = str(caught)
    pending = pending_error()
    found = on_gpus.forward()[0].asnumpy()
    return {"error": error, "pending": pending, "right": bool(np.array_equal(found, expected))}


def failing_training(name):
    """Train, with another failing launch in every other step; return all unexpected outcomes."""
    step, read = _training(name)
    for _ in range(STEPS):
        step()
        mx.nd.waitall()
    before = driver().calls("cuLaunchKernel")
    step()
    mx.nd.waitall()
    launches = driver().calls("cuLaunchKernel") - before
    wrong = []
    for number in range(FAULTS):
        driver().fail("cuLaunchKernel", after=number * launches // FAULTS)
        failing = _errors(step, read, mx.nd.waitall)
        clean = _errors(mx.nd.waitall, step, read, mx.nd.waitall)
        if len(failing) != 1 or "CUDA's driver failed at launching" not in failing[0] or clean:
            wrong.append([number, failing, clean])
    return {"launches": launches, "wrong": wrong}


def _errors(*calls):
    """The errors of these calls, one after the other; each must raise one."""
    errors = []
    for call in calls:
        try:
            call()
        except (mx.base.MXNetError, GraphError) as error:
            errors.append(str(error))
    return errors


def deletion():
    """Delete executors whose work is pending; return any error, and another fetch's values."""
    load()
    for number in range(20):
        bound, arrays = _fetch_graph(SPECS["rows"], contexts()[:3])
        for _ in range(5):
            for array in arrays.values():
                array += number
            outputs = bound.forward()
        del bound, arrays, outputs
        gc.collect()
    return {"pending": pending_error(), **fetches()}


def _module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _net(name):
    """An example's network and its inputs."""
    net, inputs = NETS[name](_module(ROOT / f"examples/{name}.py"))
    net.initialize(mx.init.Xavier(), ctx=mx.gpu())
    net.hybridize()
    return net, inputs


def _training(name):
    """Functions that take one step with an example's network, and read its output."""
    net, inputs = _net(name)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    outputs = []

    def step():
        with autograd.record():
            found = net(*inputs)
            outputs[:] = [found[0] if isinstance(found, (list, tuple)) else found]
        outputs[0].backward()
        trainer.step(1)

    return step, lambda: outputs[0].asnumpy()


def example(name):
    """The calls that the second step of an example's network makes."""
    step, _ = _training(name)
    step()
    mx.nd.waitall()
    before = counts()
    step()
    mx.nd.waitall()
    after = counts()
    return {call: after[call] - before[call] for call in after}


def counted(name):
    """The calls of an example's executors in a step, and those that gpu_calls.py counts."""
    gpu_calls = _module(ROOT / "benchmarks/gpu_calls.py")
    made = []
    with looking(compiled=made.append):
        step, _ = _training(name)
        step()
    compiled = made[0]
    tiles = {
        tile: mx.nd.zeros(box.shape, context, variable.layout.dtype)
        for variable in compiled.variables.values()
        for tile, box, context in zip(variable.tiles, variable.layout.boxes, contexts())
        if variable.role in ("parameter", "aux")
    }
    program = Program(compiled.step, contexts(), tiles)
    expected = sum(
        (gpu_calls.count(graph, len(contexts())) for graph in compiled.step.graphs),
        collections.Counter(),
    )
    for _ in range(STEPS):
        mx.nd.waitall()
        before = counts()
        program._halves.forward(is_train=True)
        program._halves.backward()
        mx.nd.waitall()
    after = counts()
    return {
        "expected": {"copies": 0, "kernels": 0, **expected},
        "found": {call: after[call] - before[call] for call in after},
        "operators": sum(
            node.op != VARIABLE for graph in compiled.step.graphs for node in graph.nodes
        ),
    }


def _digits(module):
    return module.make_net(16), [mx.nd.zeros((64, 1, 8, 8), ctx=mx.gpu())]


def _lstm(module):
    net = module.LanguageModel(72, 64, 2, 8)
    characters = mx.nd.zeros((32, 8), ctx=mx.gpu())
    return net, [characters, net.cells.begin_state(batch_size=32, ctx=mx.gpu())]


NETS = {"digits_resnet": _digits, "text_lstm": _lstm}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
