"""MultiFetch inside MXNet's executors: choosing it, its memory, and its order."""

import contextlib
import ctypes
import json
import os
import random
import threading
import time
from types import SimpleNamespace

import mxnet as mx
import numpy as np
import pytest
from mxnet.libinfo import find_lib_path

from tofu import _core
from tofu.errors import GraphError
from tofu.mx import extension
from tofu.mx.extension import mxnet_errors
from tofu.mx.nnvm import VARIABLE, Entry, Graph, Node
from tofu.mx.run import executor, fetch_check
from tofu.mx.run.fetch_check import MULTIFETCH, PLAIN, usable_fetch
from tofu.plans.fetch import Fetch

CONTEXTS = [mx.cpu(0), mx.cpu(1)]
ROUNDS = 1000
TILES = 4
WIDTH = 16384
OBSERVER = ctypes.CFUNCTYPE(None)


def node(op, name, worker, inputs=(), shapes=((WIDTH,),), dtypes=(0,), **attrs):
    made = Node(op, name, attrs, list(inputs), num_outputs=len(shapes))
    made.attrs["__ctx_group__"] = f"worker{worker}"
    made.shapes, made.dtypes = list(shapes), list(dtypes)
    return made


def document(heads):
    graph = Graph([Entry(*head) for head in heads])
    order = graph.topological()
    attrs = {
        "shape": ["list_shape", [shape for each in order for shape in each.shapes]],
        "dtype": ["list_int", [flag for each in order for flag in each.dtypes]],
    }
    return _core.Graph(graph.to_json(attrs))


@pytest.fixture
def observe():
    """Register a function to be called before every fetch."""
    extension.load()
    library = ctypes.CDLL(str(extension._find_library()))
    kept = []

    def start(function):
        kept.append(OBSERVER(function))
        library.TofuObserveFetches(kept[-1])

    yield start
    mx.nd.waitall()
    library.TofuObserveFetches(OBSERVER())


DIRECT = Fetch(MULTIFETCH)


def test_contexts_of_this_machine_can_fetch():
    assert usable_fetch(MULTIFETCH, CONTEXTS) == DIRECT
    assert usable_fetch(MULTIFETCH, [mx.cpu(0)]) == DIRECT
    assert usable_fetch(PLAIN, CONTEXTS) == Fetch(PLAIN)


@pytest.mark.parametrize("missing", ["places_nodes", "views_arrays"])
def test_stock_operators_copy_where_tiles_cannot_be_read(monkeypatch, untested, missing):
    monkeypatch.setattr(fetch_check, missing, lambda: False)
    fetch = usable_fetch(MULTIFETCH, CONTEXTS)
    assert fetch.kind == PLAIN and "cannot read other contexts' arrays" in fetch.reason


def test_gpus_use_multifetch_only_when_asked(monkeypatch):
    asked = []
    monkeypatch.setattr(fetch_check, "_tested", lambda given: asked.append(given) or MULTIFETCH)
    gpus = [mx.gpu(0), mx.gpu(1), mx.gpu(2)]
    assert usable_fetch(None, gpus) == Fetch(PLAIN) and not asked
    assert usable_fetch(MULTIFETCH, gpus) == MULTIFETCH
    assert usable_fetch(None, CONTEXTS) == MULTIFETCH
    assert asked == [tuple(gpus), tuple(CONTEXTS)]


@pytest.fixture
def untested():
    """Forget the results of earlier self-tests, and of this one."""
    fetch_check._tested.cache_clear()
    yield
    fetch_check._tested.cache_clear()


def test_all_workers_copy_if_some_are_out_of_reach(monkeypatch, untested):
    gpus = [mx.gpu(0), mx.gpu(1), mx.gpu(4)]
    found = frozenset({(0, 2), (1, 2), (2, 0), (2, 1)})
    asked = []
    monkeypatch.setattr(fetch_check, "load", lambda: None)
    monkeypatch.setattr(fetch_check, "connect_gpus", lambda given: asked.append(given) or found)
    monkeypatch.setattr(fetch_check, "_self_test", None)  # nothing to test
    fetch = usable_fetch(MULTIFETCH, gpus)
    assert asked == [[0, 1, 4]]
    assert fetch == Fetch(
        PLAIN,
        reason="these GPUs cannot read others' memory: GPU 0 that of GPU 4, GPU 1 that of GPU 4, "
        "GPU 4 that of GPU 0, and 1 more pairs",
    )


@pytest.mark.gpu
def test_gpus_that_reach_each_other_can_fetch():
    count = mx.context.num_gpus()
    if count < 2:
        pytest.skip(f"MXNet sees {count} GPUs, this needs two")
    fetch = usable_fetch(MULTIFETCH, [mx.gpu(0), mx.gpu(1)])
    assert (
        fetch == Fetch(MULTIFETCH, crossing="tiles") or "cannot read others' memory" in fetch.reason
    )


def test_what_fails_the_self_test_is_not_used(monkeypatch, untested):
    def refuse(*_):
        raise GraphError("binding the graph: no peers here")

    monkeypatch.setattr(fetch_check, "bind", refuse)
    found = usable_fetch(MULTIFETCH, CONTEXTS)
    assert found == Fetch(PLAIN, reason="binding the graph: no peers here")


def test_a_failed_self_test_leaves_no_error_behind(monkeypatch, untested):
    """MXNet would raise it again, for each array that the failed operator did not write."""
    matrix = mx.nd.full((1, 1), -1, ctx=mx.cpu())  # has no Cholesky factor
    bind = executor.bind

    def fail(*args):
        bound = bind(*args)
        with mxnet_errors("failing"):
            failed = [mx.nd.linalg.potrf(matrix) for _ in range(2)]
            failed[0].asnumpy()
        return bound

    monkeypatch.setattr(fetch_check, "bind", fail)
    fetch = usable_fetch(MULTIFETCH, CONTEXTS)
    assert fetch.kind == PLAIN and "failing: MXNet refused" in fetch.reason
    mx.nd.waitall()


def test_errors_of_the_script_stay_the_scripts(untested):
    matrix = mx.nd.full((1, 1), -1, ctx=mx.cpu())
    failed = mx.nd.linalg.potrf(matrix)
    with pytest.raises(mx.base.MXNetError, match="potrf"):
        usable_fetch(MULTIFETCH, CONTEXTS)
    del failed
    assert usable_fetch(MULTIFETCH, CONTEXTS) == DIRECT


def respecified(change):
    """The self-test's graph with other specifications of its fetches."""
    graph = json.loads(fetch_check._test_graph(2).to_json())
    for each in graph["nodes"]:
        if each["op"] == "_tofu_multifetch":
            each["attrs"]["spec"] = change(each["attrs"]["spec"])
    return _core.Graph(json.dumps(graph))


def test_wrong_values_fail_the_self_test(monkeypatch, untested):
    graph = respecified(lambda spec: spec.replace("0@0,0>", "1@0,0>"))
    monkeypatch.setattr(fetch_check, "_test_graph", lambda *_: graph)
    fetch = usable_fetch(MULTIFETCH, CONTEXTS)
    assert fetch.kind == PLAIN and "found wrong values on cpu(0)" in fetch.reason


def test_a_damaged_specification_is_named():
    graph = respecified(lambda spec: "dtype=0")
    with pytest.raises(GraphError, match=r'MultiFetch: found "dtype=0", expected shape=\.\.\.'):
        executor.bind("test", graph, CONTEXTS, arrays())


def arrays():
    return {f"tile{w}": mx.nd.zeros((1, 8), context) for w, context in enumerate(CONTEXTS)}


def tiles_read_directly(count, op="_plus_scalar", **attrs):
    """Worker 0 makes tiles of x, and again reads each; worker 1 fetches each."""
    attrs = attrs or {"scalar": "1"}
    x, fetches, heads = node(VARIABLE, "x", 0), [], []
    for number in range(count):
        tile = node("_plus_scalar", f"tile{number}", 0, [Entry(x)], scalar=str(number))
        fetches.append(node(
            "_tofu_multifetch", f"fetch{number}", 1, [Entry(tile)],
            spec=f"dtype=0 shape={WIDTH} sources={WIDTH}; pieces=0@0>0:{WIDTH}", __direct__="1",
        ))  # fmt: skip
        heads += [(fetches[-1],), (node(op, f"own{number}", 0, [Entry(tile)], **attrs),)]
    total = node("add_n", "total", 1, map(Entry, fetches), num_args=str(count))
    return document([*heads, (total,)])


def test_no_tile_is_written_while_another_worker_reads_it(observe):
    """Tiles share memory, workers pause, and the script changes x without waiting."""
    rng, seen = random.Random(3), []

    def dawdle():
        seen.append(1)
        time.sleep(rng.random() * 0.002 if rng.random() < 0.3 else 0)

    observe(dawdle)
    x = mx.nd.zeros((WIDTH,), CONTEXTS[0])
    bound = executor.bind("tiles", tiles_read_directly(TILES), CONTEXTS, {"x": x})
    assert "_CrossDeviceCopy" not in bound.debug_str()
    found = []
    for number in range(ROUNDS):
        x[:] = number
        found.append(bound.forward()[-1][:: WIDTH - 1].copy())
    for number, values in enumerate(found):
        assert (values.asnumpy() == TILES * number + sum(range(TILES))).all()
    assert len(seen) == TILES * ROUNDS


def test_the_owner_may_note_a_layout_while_another_worker_reads():
    """oneDNN's activation records the layout of its input on its worker's thread."""
    x = mx.nd.zeros((WIDTH,), CONTEXTS[0])
    graph = tiles_read_directly(16, "Activation", act_type="relu")
    bound = executor.bind("tiles", graph, CONTEXTS, {"x": x})
    for number in range(ROUNDS // 2):
        x[:] = number
        total = bound.forward()[-1]
    assert (total.asnumpy() == 16 * number + sum(range(16))).all()


def test_a_graph_that_mxnet_places_is_refused(monkeypatch):
    """Its operators would read copies that the graph does not have, in another order."""
    placed = extension.placed
    monkeypatch.setattr(executor, "placed", lambda devices: placed(devices[1:]))
    x = mx.nd.zeros((WIDTH,), CONTEXTS[0])
    with pytest.raises(GraphError, match="MXNet copies between contexts, expected"):
        executor.bind("tiles", tiles_read_directly(2), CONTEXTS, {"x": x})
    monkeypatch.setattr(executor, "placed", placed)
    executor.bind("tiles", tiles_read_directly(2), CONTEXTS, {"x": x})


def test_a_placement_ends_with_its_bind():
    """MXNet places later graphs of the script with copies, as usual."""
    x = mx.nd.zeros((WIDTH,), CONTEXTS[0])
    executor.bind("tiles", tiles_read_directly(2), CONTEXTS, {"x": x})
    with mx.AttrScope(ctx_group="a"):
        y = mx.sym.var("y") + 1
    with mx.AttrScope(ctx_group="b"):
        y = y * 2
    groups = {"a": CONTEXTS[0], "b": CONTEXTS[1]}
    bound = y.bind(mx.cpu(1), {"y": mx.nd.ones((3,), CONTEXTS[0])}, group2ctx=groups)
    assert bound.debug_str().count("_CrossDeviceCopy") == 1
    assert (bound.forward()[0].asnumpy() == 4).all()


def test_workers_are_placed_by_the_names_of_their_groups():
    """MXNet's order of eleven workers' groups begins worker0, worker1, worker10, worker2."""
    contexts = [mx.cpu(number) for number in range(11)]
    tiles = [node(VARIABLE, f"x{w}", w, shapes=[(1, WIDTH)]) for w in range(11)]
    rows = f"1,{WIDTH};" * 11
    pieces = ";".join(f"{w}@0,0>{w},0:1,{WIDTH}" for w in range(11))
    fetch = node(
        "_tofu_multifetch", "fetch", 7, map(Entry, tiles), [(11, WIDTH)],
        spec=f"dtype=0 shape=11,{WIDTH} sources={rows} pieces={pieces}", __direct__="1",
    )  # fmt: skip
    arrays = {f"x{w}": mx.nd.full((1, WIDTH), w, contexts[w]) for w in range(11)}
    bound = executor.bind("rows", document([(fetch,)]), contexts, arrays)
    (region,) = bound.forward()[:1]
    assert region.context == contexts[7]
    assert (region.asnumpy()[:, 0] == range(11)).all()


def read_in_turn(workers):
    """Every worker fetches its own tile."""
    spec = f"dtype=0 shape={WIDTH} sources={WIDTH}; pieces=0@0>0:{WIDTH}"
    return document(
        [
            (node("_tofu_multifetch", f"fetch{w}", w, [Entry(node(VARIABLE, f"x{w}", w))],
                  spec=spec, __direct__="1"),)
            for w in range(workers)
        ]
    )  # fmt: skip


def test_workers_fetch_at_the_same_time(observe):
    """Two fetches wait for each other while they run, so neither blocks the other."""
    assert extension.free_operators(extension._library, find_lib_path()[0]) is None
    both = threading.Barrier(2)
    met = []

    def meet():
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=20)
            met.append(threading.get_ident())

    tiles = {f"x{w}": mx.nd.full((WIDTH,), w, context) for w, context in enumerate(CONTEXTS)}
    bound = executor.bind("fetches", read_in_turn(2), CONTEXTS, tiles)
    mx.nd.waitall()
    observe(meet)
    regions = [region.asnumpy() for region in bound.forward()]
    assert len(set(met)) == 2
    assert all((region == w).all() for w, region in enumerate(regions))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_mxnet_makes_no_segments(monkeypatch, device):
    """Segments would make a worker's nodes wait for the inputs of all of them."""
    name = "MXNET_EXEC_BULK_EXEC_INFERENCE"
    monkeypatch.delenv(name, raising=False)
    seen = []
    monkeypatch.setattr(mx.sym.Symbol, "bind", lambda *_, **__: seen.append(os.environ.get(name)))
    monkeypatch.setattr(executor, "join_nodes", lambda *_: None)
    contexts = [mx.Context(device, 0), mx.Context(device, 1)]
    tiles = {f"x{w}": SimpleNamespace(context=context) for w, context in enumerate(contexts)}
    x = [Entry(node(VARIABLE, name, w)) for w, name in enumerate(tiles)]
    graph = document([(node("relu", f"own{w}", w, [x[w]]),) for w in range(2)])
    executor.bind("relu", graph, contexts, tiles)
    assert seen == ["0"]
    assert name not in os.environ


def test_tiles_share_memory_once_they_are_read():
    def megabytes(count):
        x = mx.nd.zeros((WIDTH,), CONTEXTS[0])
        bound = executor.bind("tiles", tiles_read_directly(count), CONTEXTS, {"x": x})
        line = next(each for each in bound.debug_str().splitlines() if "MB allocated" in each)
        return int(line.split()[1])

    # Of each tile, its owner's result and the reader's region live to the end; tiles share.
    region = WIDTH * 4 / 2**20
    assert megabytes(128) == pytest.approx((2 * 128 + 1) * region, abs=1)


CONVOLUTION = {"kernel": "(3, 3)", "pad": "(1, 1)", "num_filter": "16", "no_bias": "True"}


@pytest.mark.skipif(not mx.runtime.Features().is_enabled("MKLDNN"), reason="MXNet without oneDNN")
def test_a_worker_reads_a_copy_of_a_tile_in_a_layout_of_onednn():
    """Worker 0 computes a convolution, and its fetch makes a vector of the result."""
    shape, flat = (1, 16, 8, 8), 16 * 8 * 8
    x = node(VARIABLE, "x", 0, shapes=[shape])
    weight = node(VARIABLE, "weight", 0, shapes=[(16, 16, 3, 3)])
    inputs = [Entry(x), Entry(weight)]
    tile = node("Convolution", "tile", 0, inputs, [shape], **CONVOLUTION)
    copy = node(
        "_tofu_multifetch", "copy", 0, [Entry(tile)], [(flat,)],
        spec=f"dtype=0 shape={flat} sources={flat}; pieces=0@0>0:{flat}", __direct__="1",
    )  # fmt: skip
    fetch = node(
        "_tofu_multifetch", "fetch", 1, [Entry(copy)], [shape],
        spec="dtype=0 shape=1,16,8,8 sources=1,16,8,8; pieces=0@0,0,0,0>0,0,0,0:1,16,8,8",
        __direct__="1",
    )  # fmt: skip
    after = node("_plus_scalar", "after", 0, [Entry(tile)], [shape], scalar="1")
    rng = np.random.default_rng(3)
    arrays = {
        "x": mx.nd.array(rng.integers(-4, 5, shape), CONTEXTS[0]),
        "weight": mx.nd.array(rng.integers(-4, 5, (16, 16, 3, 3)), CONTEXTS[0]),
    }
    right = mx.nd.Convolution(arrays["x"], arrays["weight"], **CONVOLUTION).asnumpy()
    bound = executor.bind("convolution", document([(fetch,), (after,)]), CONTEXTS, arrays)
    for _ in range(3):
        fetched, added = (array.asnumpy() for array in bound.forward())
        assert (fetched == right).all() and (added == right + 1).all()
