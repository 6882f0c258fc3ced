"""MultiFetch inside MXNet's executors: choosing it, its memory, and its order."""

import contextlib
import ctypes
import json
import os
import random
import subprocess
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
from tofu.mx.extension import MATCH_RANGE, SEARCH_MATCH_RANGE, mxnet_errors
from tofu.mx.nnvm import VARIABLE, Entry, Graph, Node
from tofu.mx.run import executor, fetch_check
from tofu.mx.run.fetch_check import MULTIFETCH, PLAIN, usable_fetch
from tofu.plans.fetch import Fetch

CONTEXTS = [mx.cpu(0), mx.cpu(1)]
ROUNDS = 1000
TILES = 4
WIDTH = 16384
OBSERVER = ctypes.CFUNCTYPE(None, ctypes.c_int)


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


def tiles_of_one_owner(count, retired=True):
    """Worker 0 makes x + 0, x + 1, ...; worker 1 fetches each, which is the tile's only use.

    So a tile's memory is free for the next tile, or the next round, as soon as it is read.
    """
    x, heads, fetches = node(VARIABLE, "x", 0), [], []
    for number in range(count):
        tile = node("_plus_scalar", f"tile{number}", 0, [Entry(x)], scalar=str(number))
        handle = node("_tofu_publish", f"publish{number}", 0, [Entry(tile)], [(1,)], [6])
        fetch = node(
            "_tofu_multifetch", f"fetch{number}", 1, [Entry(handle)], [(WIDTH,), (1,)], [0, 6],
            spec=f"dtype=0 shape={WIDTH} remote=1 sources={WIDTH}; pieces=0@0>0:{WIDTH}",
        )  # fmt: skip
        inputs = [Entry(tile), Entry(handle), Entry(fetch, 1)]
        retire = node("_tofu_retire", f"retire{number}", 0, inputs, [(1,)], [6], num_args="3")
        heads.append((retire if retired else fetch,))
        fetches.append(fetch)
    total = node("add_n", "total", 1, map(Entry, fetches), num_args=str(count))
    return document([*heads, (total,)])


@pytest.fixture
def observe():
    """Register a function to be called before every step of a fetch."""
    extension.load()
    library = ctypes.CDLL(str(extension._find_library()))
    kept = []

    def start(function):
        kept.append(OBSERVER(function))
        library.TofuObserveFetches(kept[-1])

    yield start
    mx.nd.waitall()
    library.TofuObserveFetches(OBSERVER())


DIRECT = Fetch(MULTIFETCH, crossing="plain_tiles")


def test_contexts_of_this_machine_can_fetch():
    assert usable_fetch(MULTIFETCH, CONTEXTS) == DIRECT
    assert usable_fetch(MULTIFETCH, [mx.cpu(0)]) == DIRECT
    assert usable_fetch(PLAIN, CONTEXTS) == Fetch(PLAIN)


@pytest.mark.parametrize("missing", ["places_nodes", "views_arrays"])
def test_handles_are_copied_where_tiles_cannot_be_read(monkeypatch, untested, missing):
    monkeypatch.setattr(fetch_check, missing, lambda: False)
    assert usable_fetch(MULTIFETCH, CONTEXTS) == Fetch(MULTIFETCH, crossing="copies")


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


def test_only_workers_out_of_reach_copy(monkeypatch, untested):
    gpus = [mx.gpu(0), mx.gpu(1), mx.gpu(4)]
    found = frozenset({(0, 2), (1, 2), (2, 0), (2, 1)})
    asked = []
    monkeypatch.setattr(fetch_check, "load", lambda: None)
    monkeypatch.setattr(fetch_check, "connect_gpus", lambda given: asked.append(given) or found)
    monkeypatch.setattr(fetch_check, "_self_test", lambda *given: asked.append(given))
    fetch = usable_fetch(MULTIFETCH, gpus)
    assert asked == [[0, 1, 4], (tuple(gpus), found, "copies")]
    assert (fetch.kind, fetch.apart, fetch.crossing) == (MULTIFETCH, found, "copies")
    assert fetch.reason == (
        "these GPUs cannot read others' memory: GPU 0 that of GPU 4, GPU 1 that of GPU 4, "
        "GPU 4 that of GPU 0, and 1 more pairs"
    )


def test_all_workers_copy_if_none_is_in_reach(monkeypatch, untested):
    found = frozenset({(0, 1), (1, 0)})
    monkeypatch.setattr(fetch_check, "load", lambda: None)
    monkeypatch.setattr(fetch_check, "connect_gpus", lambda _: found)
    monkeypatch.setattr(fetch_check, "_self_test", None)  # nothing to test
    fetch = usable_fetch(MULTIFETCH, [mx.gpu(0), mx.gpu(1)])
    assert (fetch.kind, fetch.apart) == (PLAIN, frozenset())
    assert "GPU 0 that of GPU 1" in fetch.reason


def test_the_self_test_reads_only_what_is_in_reach(monkeypatch):
    assert fetch_check._self_test(tuple(CONTEXTS), frozenset({(0, 1)})) is None
    graph = fetch_check._test_graph(2, frozenset({(0, 1)}))
    fetches = [n for n in json.loads(graph.to_json())["nodes"] if n["op"] == "_tofu_multifetch"]
    assert [each["attrs"]["spec"].split()[2] for each in fetches] == ["remote=0", "remote=1"]


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


def wrong_rounds(rounds, retired):
    """Count rounds with a wrong sum while the script changes x without waiting."""
    x = mx.nd.zeros((WIDTH,), CONTEXTS[0])
    graph = tiles_of_one_owner(TILES, retired)
    bound = executor.bind("tiles", graph, CONTEXTS, {"x": x})
    found = []
    for number in range(rounds):
        x[:] = number
        found.append(bound.forward()[-1][:: WIDTH - 1].copy())
    expected = [TILES * number + sum(range(TILES)) for number in range(rounds)]
    return sum((values.asnumpy() != right).any() for values, right in zip(found, expected))


def test_a_tile_is_never_used_again_before_its_last_reader_is_done(observe):
    """Readers and writers have random delays, and tiles share memory."""
    seed = int(os.environ.get("TOFU_TEST_SEED", "5"))
    print("seed", seed)
    rng = random.Random(seed)
    steps = set()

    def dawdle(step):
        steps.add(step)
        if rng.random() < 0.1:
            time.sleep(rng.random() * 0.001)

    observe(dawdle)
    assert wrong_rounds(ROUNDS, retired=True) == 0
    assert steps == {0, 1, 2}
    # Without retirements, sums go wrong, so this test can fail.
    assert wrong_rounds(ROUNDS // 5, retired=False) > 0


def tiles_read_directly(count, op="_plus_scalar", **attrs):
    """Worker 0 makes tiles of x, and again reads each; worker 1 fetches each."""
    attrs = attrs or {"scalar": "1"}
    x, fetches, heads = node(VARIABLE, "x", 0), [], []
    for number in range(count):
        tile = node("_plus_scalar", f"tile{number}", 0, [Entry(x)], scalar=str(number))
        fetches.append(node(
            "_tofu_multifetch", f"fetch{number}", 1, [Entry(tile)], [(WIDTH,), (1,)], [0, 6],
            spec=f"dtype=0 shape={WIDTH} remote=0 sources={WIDTH}; pieces=0@0>0:{WIDTH}",
            __direct__="1",
        ))  # fmt: skip
        heads.append((node(op, f"own{number}", 0, [Entry(tile)], **attrs),))
    total = node("add_n", "total", 1, map(Entry, fetches), num_args=str(count))
    return document([*heads, (total,)])


def test_no_tile_is_written_while_another_worker_reads_it(observe):
    """Tiles share memory, workers pause, and the script changes x without waiting."""
    rng, seen = random.Random(3), set()

    def dawdle(step):
        seen.add(step)
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
    assert seen == {1}


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
    bound = executor.bind("tiles", tiles_of_one_owner(2), CONTEXTS, {"x": x})
    assert bound.debug_str().count("_CrossDeviceCopy") == 4
    with mx.AttrScope(ctx_group="a"):
        y = mx.sym.var("y") + 1
    with mx.AttrScope(ctx_group="b"):
        y = y * 2
    groups = {"a": CONTEXTS[0], "b": CONTEXTS[1]}
    bound = y.bind(mx.cpu(1), {"y": mx.nd.ones((3,), CONTEXTS[0])}, group2ctx=groups)
    assert (bound.forward()[0].asnumpy() == 4).all()


def test_workers_are_placed_by_the_names_of_their_groups():
    """MXNet's order of eleven workers' groups begins worker0, worker1, worker10, worker2."""
    contexts = [mx.cpu(number) for number in range(11)]
    tiles = [node(VARIABLE, f"x{w}", w, shapes=[(1, WIDTH)]) for w in range(11)]
    rows = f"1,{WIDTH};" * 11
    pieces = ";".join(f"{w}@0,0>{w},0:1,{WIDTH}" for w in range(11))
    fetch = node(
        "_tofu_multifetch", "fetch", 7, map(Entry, tiles), [(11, WIDTH), (1,)], [0, 6],
        spec=f"dtype=0 shape=11,{WIDTH} remote=0 sources={rows} pieces={pieces}", __direct__="1",
    )  # fmt: skip
    arrays = {f"x{w}": mx.nd.full((1, WIDTH), w, contexts[w]) for w in range(11)}
    bound = executor.bind("rows", document([(fetch,)]), contexts, arrays)
    (region,) = bound.forward()[:1]
    assert region.context == contexts[7]
    assert (region.asnumpy()[:, 0] == range(11)).all()


def published(workers):
    """Every worker publishes its own tile, and none reads it."""
    tiles = [node(VARIABLE, f"x{w}", w) for w in range(workers)]
    publish = "_tofu_publish"
    return document(
        [(node(publish, f"publish{w}", w, [Entry(tiles[w])], [(1,)], [6]),) for w in range(workers)]
    )


def test_workers_publish_at_the_same_time(observe):
    """Two publications wait for each other while they run, so neither blocks the other."""
    assert extension.free_operators(extension._library, find_lib_path()[0]) is None
    both = threading.Barrier(2)
    met = []

    def meet(_):
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=20)
            met.append(threading.get_ident())

    tiles = {f"x{w}": mx.nd.zeros((WIDTH,), context) for w, context in enumerate(CONTEXTS)}
    bound = executor.bind("publications", published(2), CONTEXTS, tiles)
    mx.nd.waitall()
    observe(meet)
    handles = [handle.asnumpy() for handle in bound.forward()]
    assert len(set(met)) == 2
    assert all(handle != 0 for handle in handles)


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
    executor.bind("publications", published(2), contexts, tiles)
    assert seen == ["0"]
    assert name not in os.environ


def test_tiles_share_memory_once_they_are_retired():
    def megabytes(count):
        x = mx.nd.zeros((WIDTH,), CONTEXTS[0])
        bound = executor.bind("tiles", tiles_of_one_owner(count), CONTEXTS, {"x": x})
        line = next(each for each in bound.debug_str().splitlines() if "MB allocated" in each)
        return int(line.split()[1])

    # The reader's regions are all alive until they are added; the tiles share one block.
    region = WIDTH * 4 / 2**20
    assert megabytes(128) == pytest.approx((128 + 1) * region, abs=1)


@pytest.mark.parametrize(
    ("shape", "source", "numbers", "expected"),
    [
        ((64,), "_tofu_publish", 1, None),
        ((1, 8, 1, 1), "_tofu_publish", 1, 1),
        ((1, 17, 1, 1), "_tofu_publish", 1, None),
        ((1, 17, 1, 1), "_tofu_publish", 2, 1),
        ((1, 33, 1, 1), "_tofu_publish", 2, None),
        ((1, 2, 1, 1), "_tofu_publish", 2, 0),
        ((2, 2), "_tofu_publish", 2, None),
        ((64,), "_tofu_publish", 17, 0),
        ((64,), "relu", 64, 0),
        ((2, 2), "relu", 4, 0),
    ],
)
def test_memory_is_shared_where_copies_between_contexts_are_safe(shape, source, numbers, expected):
    tile = node(VARIABLE, "tile", 0, shapes=[shape])
    crossing = (numbers,) if source == "_tofu_publish" else shape
    sent = node(source, "sent", 0, [Entry(tile)], [crossing])
    graph = document([(node("relu", "read", 1, [Entry(sent)], [crossing]),)])
    setting = {SEARCH_MATCH_RANGE: "1"} if expected is None else {MATCH_RANGE: str(expected)}
    assert executor.planner_settings(graph, CONTEXTS) == setting
    on_gpus = executor.planner_settings(graph, [mx.gpu(0), mx.gpu(1)])
    assert on_gpus == {SEARCH_MATCH_RANGE: "1"}


CONVOLUTION = {"kernel": "(3, 3)", "pad": "(1, 1)", "num_filter": "16", "no_bias": "True"}
# Runs in a separate process, because oneDNN reads DNNL_VERBOSE only once.
RETIRE = """
import os, sys
import mxnet as mx, numpy as np
from mxnet.libinfo import find_lib_path
from tofu import _core
from tofu.mx import extension
from tofu.mx.run import executor
mode, folder, rounds = sys.argv[1:]
path = os.fsencode(find_lib_path()[0])
if mode == "opened":
    extension.free_operators = lambda library, _: library.TofuFreeOpen(path)
extension.load()
if mode == "ended":
    extension._library.TofuFreeEnd()
graph = _core.Graph(open(f"{folder}/graph.json").read())
contexts = [mx.cpu(0), mx.cpu(1)]
tiles = {name: mx.nd.array(array) for name, array in np.load(f"{folder}/tiles.npz").items()}
bound = executor.bind("convolution", graph, contexts, tiles)
for _ in range(int(rounds)):
    mx.nd.save(f"{folder}/{mode}", bound.forward()[-2:])
"""


def convolution_of_another_worker():
    """Worker 0 computes a convolution in one of oneDNN's layouts; worker 1 fetches the result."""
    shape = (1, 16, 8, 8)
    x = node(VARIABLE, "x", 0, shapes=[shape])
    weight = node(VARIABLE, "weight", 0, shapes=[(16, 16, 3, 3)])
    inputs = [Entry(x), Entry(weight)]
    tile = node("Convolution", "tile", 0, inputs, [shape], **CONVOLUTION)
    handle = node("_tofu_publish", "publish", 0, [Entry(tile)], [(1,)], [6])
    fetch = node(
        "_tofu_multifetch", "fetch", 1, [Entry(handle)], [shape, (1,)], [0, 6],
        spec="dtype=0 shape=1,16,8,8 remote=1 sources=1,16,8,8; pieces=0@0,0,0,0>0,0,0,0:1,16,8,8",
    )  # fmt: skip
    inputs = [Entry(tile), Entry(handle), Entry(fetch, 1)]
    retire = node("_tofu_retire", "retire", 0, inputs, [(1,)], [6], num_args="3")
    after = node("_plus_scalar", "after", 0, [Entry(tile)], [shape], scalar="1")
    return document([(retire,), (fetch,), (after,)])


@pytest.mark.skipif(not mx.runtime.Features().is_enabled("MKLDNN"), reason="MXNet without oneDNN")
def test_a_tile_in_a_layout_of_onednn_is_not_copied_to_be_retired(tmp_path, forking_python):
    """MXNet's own operators copy it, and so do tofu's until their resources have been found."""
    rounds = 3
    rng = np.random.default_rng(3)
    x = rng.integers(-4, 5, (1, 16, 8, 8)).astype("float32")
    weight = rng.integers(-4, 5, (16, 16, 3, 3)).astype("float32")
    np.savez(tmp_path / "tiles.npz", x=x, weight=weight)
    (tmp_path / "graph.json").write_text(convolution_of_another_worker().to_json())

    def reorders(mode):
        done = subprocess.run(
            [forking_python, "-c", RETIRE, mode, str(tmp_path), str(rounds)],
            env={**os.environ, "DNNL_VERBOSE": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        fetched, after = (array.asnumpy() for array in mx.nd.load(str(tmp_path / mode)))
        assert (fetched == right).all() and (after == right + 1).all()
        return done.stdout.count(",exec,cpu,reorder,")

    right = mx.nd.Convolution(mx.nd.array(x), mx.nd.array(weight), **CONVOLUTION).asnumpy()
    free = reorders("free")
    assert reorders("opened") == reorders("ended") == free + rounds
