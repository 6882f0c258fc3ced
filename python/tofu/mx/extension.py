"""Loads tofu's extension library into MXNet, and wraps its functions.

Call ``load()`` before differentiating or binding a graph. It raises a TofuError with the
reason if this MXNet cannot run partitioned graphs; the caller then runs the script
serially.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Protocol

import mxnet as mx
import numpy as np
from mxnet.libinfo import find_lib_path

from tofu.config import MXNET_ENVIRONMENT, private_directory
from tofu.errors import GraphError, InternalError, TofuError

from .nnvm import VARIABLE, Entry, Graph, Node, Shape

__all__ = [
    "MATCH_RANGE",
    "SEARCH_MATCH_RANGE",
    "SUPPORTED_VERSION",
    "UnsupportedMXNetError",
    "backward_operators",
    "connect_gpus",
    "environment",
    "is_stateful_backward",
    "join_nodes",
    "label_nodes",
    "load",
    "mxnet_errors",
    "placed",
    "places_nodes",
    "run_part",
    "run_whole",
    "runs_parts",
    "taught",
    "untaught",
    "views_arrays",
]

SUPPORTED_VERSION = "1.9.1"
_LIBRARY = "libtofu_mxnet.so"
_FLOAT64 = 1
# Environment variables that MXNet reads at every bind, like those of MXNET_ENVIRONMENT: how
# many times larger a block may be than the tensor that reuses it, and whether to try smaller
# factors too.
MATCH_RANGE = "NNVM_EXEC_MATCH_RANGE"
SEARCH_MATCH_RANGE = "NNVM_AUTO_SEARCH_MATCH_RANGE"

_log = logging.getLogger("tofu")
_lock = threading.RLock()
_library: Optional[ctypes.CDLL] = None
_stateful: frozenset[str] = frozenset()
_backward: frozenset[str] = frozenset()
_runs_parts = False
_places_nodes = False


class UnsupportedMXNetError(TofuError):
    """This MXNet cannot run partitioned graphs."""


class NodeLabels(Protocol):
    """Labels the nodes of executors for MXNet's profiler (tofu.trace)."""

    def count(self, executor: mx.executor.Executor) -> int:
        """The number of its nodes."""

    def begin(self, executor: mx.executor.Executor, number: int) -> None:
        """Label the operators that this thread pushes from now on."""

    def end(self) -> None:
        """Stop labelling."""


_labels: Optional[NodeLabels] = None


def label_nodes(labels: Optional[NodeLabels]) -> None:
    """Push nodes one by one from now on, each with its label; None stops it."""
    global _labels
    _labels = labels


@contextlib.contextmanager
def mxnet_errors(doing: str) -> Iterator[None]:
    """Turn an error of MXNet into a GraphError that names tofu's action."""
    try:
        yield
    except mx.base.MXNetError as error:
        raise GraphError(f"{doing}: MXNet refused: {error}") from error


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside this context; MXNet reads them at every bind."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def load(library: Optional[Path] = None) -> None:
    """Load the extension library, once, and check that MXNet can be taught shapes.

    library: the file to load instead of the installed one.

    Raises:
        UnsupportedMXNetError: MXNet is not 1.9.1, the library is missing or does not
            load, or the self-test fails.
    """
    global _library, _runs_parts, _stateful, _backward, _places_nodes
    with _lock:
        if _library is not None:
            return
        check_version(mx.__version__)
        path = str(library or _find_library())
        try:
            mx.base.check_call(mx.base._LIB.MXLoadLib(mx.base.c_str(path), 0))
            handle = ctypes.CDLL(path)
        except (mx.base.MXNetError, OSError) as error:
            raise UnsupportedMXNetError(f"MXNet cannot load {path}: {error}") from error
        open_teaching(handle, find_lib_path()[0])
        keep_kernels(handle)
        handle.TofuJoinNodes.restype = ctypes.c_char_p
        _library = handle
        try:
            self_test()
        except TofuError:
            _library = None
            raise
        _stateful = frozenset(_listed(handle.TofuTeachStatefulOp))
        _backward = frozenset(_listed(handle.TofuTeachBackwardOp))
        handle.TofuRunPart.restype = ctypes.c_char_p
        _runs_parts = bool(handle.TofuRunPartOpen(os.fsencode(find_lib_path()[0])))
        problem = free_operators(handle, find_lib_path()[0])
        if problem is not None:
            _log.debug("workers on CPU contexts take turns: %s", problem)
        handle.TofuPlaceOpen.restype = ctypes.c_char_p
        reason = handle.TofuPlaceOpen(os.fsencode(find_lib_path()[0]))
        _places_nodes = reason is None
        if reason is not None:
            _log.debug("MultiFetch does not work: %s", reason.decode())


def check_version(version: str) -> None:
    """Raise UnsupportedMXNetError unless `version` is the one whose internals tofu uses."""
    if version != SUPPORTED_VERSION:
        raise UnsupportedMXNetError(
            f"MXNet {version} is installed, tofu's execution needs exactly {SUPPORTED_VERSION}: "
            "install mxnet==1.9.1 or mxnet-cu112==1.9.1"
        )


def open_teaching(library: ctypes.CDLL, libmxnet: str) -> None:
    """Find the shape-function slots in `libmxnet`, or raise UnsupportedMXNetError."""
    library.TofuTeachOpen.restype = ctypes.c_char_p
    reason = library.TofuTeachOpen(os.fsencode(libmxnet))
    if reason is not None:
        raise UnsupportedMXNetError(
            f"MXNet cannot be taught the shapes of partitioned backward operators: "
            f"{reason.decode()}"
        )


def keep_kernels(library: ctypes.CDLL) -> None:
    """Tell the library where to cache compiled GPU kernels, if the user has a home directory."""
    with contextlib.suppress(RuntimeError):
        folder = private_directory("kernels")
        if folder is not None:
            library.TofuKeepKernels(os.fsencode(folder))


def free_operators(library: ctypes.CDLL, libmxnet: str) -> Optional[str]:
    """Make tofu's operators hold no MXNet resource in graphs bound from now on.

    Otherwise the operators of all workers run one at a time, because each holds MXNet's
    only random number generator for CPUs. Returns the problem if this is impossible; then
    nothing changes.
    """
    library.TofuFreeOpen.restype = ctypes.c_char_p
    reason: Optional[bytes] = library.TofuFreeOpen(os.fsencode(libmxnet))
    if reason is not None:
        return reason.decode()
    problem = _fetch_problem()
    if problem is None and not library.TofuFreeBegin():
        problem = "MXNet keeps the resources of operators in another place than expected"
    problem = problem or _fetch_problem()
    if problem is not None:
        library.TofuFreeEnd()
    return problem


def connect_gpus(devices: Sequence[int]) -> frozenset[tuple[int, int]]:
    """Let these GPUs read each other's memory. Call ``load`` first.

    Returns the pairs (reader, owner), by position in `devices`, for which CUDA cannot do that.

    Raises:
        GraphError: CUDA's driver is missing or fails.
    """
    if _library is None:
        raise InternalError("connect_gpus: call load() first")
    count = len(devices)
    apart = ctypes.create_string_buffer(count * count)
    _library.TofuConnectGpus.restype = ctypes.c_char_p
    reason = _library.TofuConnectGpus((ctypes.c_int * count)(*devices), count, apart)
    if reason is not None:
        raise GraphError(f"connecting the GPUs {', '.join(map(str, devices))}: {reason.decode()}")
    return frozenset(divmod(number, count) for number, flag in enumerate(apart.raw) if flag)


def is_stateful_backward(op: str) -> bool:
    """Whether a backward operator reads state that its forward operator left behind."""
    return op in _stateful


def backward_operators() -> frozenset[str]:
    """The operators whose shapes MXNet may have to be taught. Call ``load`` first."""
    return _backward


def runs_parts() -> bool:
    """Whether ``run_part`` works here. Call ``load`` first."""
    return _runs_parts


def places_nodes() -> bool:
    """Whether ``placed`` works here. Call ``load`` first."""
    return _places_nodes


def views_arrays() -> bool:
    """Whether a fetch on a CPU context may read other workers' arrays. Call ``load`` first."""
    return _library is not None and bool(_library.TofuFreeViews())


@contextlib.contextmanager
def placed(devices: Sequence[tuple[str, int]]) -> Iterator[Callable[[], bool]]:
    """Bind a graph in this context without copies between its contexts.

    Args:
        devices: of every node, its name and the number that MXNet gives to its context.

    Yields a function that says afterwards whether MXNet has bound such a graph.
    """
    if _library is None or not _places_nodes:
        raise InternalError("placed: this MXNet puts copies into graphs, see places_nodes()")
    count, library = len(devices), _library
    library.TofuPlaceBegin(
        (ctypes.c_char_p * count)(*(name.encode() for name, _ in devices)),
        (ctypes.c_int * count)(*(device for _, device in devices)),
        ctypes.c_size_t(count),
    )
    graphs = 0
    try:
        yield lambda: graphs > 0
    finally:
        graphs = library.TofuPlaceEnd()


def run_part(executor: mx.executor.Executor, begin: int, end: int, *, is_train: bool) -> None:
    """Run the nodes `begin` up to but excluding `end` of an executor, in its own order.

    Raises GraphError if MXNet refuses.
    """
    if _labels is None:
        _push(executor, begin, end, is_train)
        return
    try:
        for number in range(begin, end):
            _labels.begin(executor, number)
            _push(executor, number, number + 1, is_train)
    finally:
        _labels.end()


def join_nodes(executor: mx.executor.Executor, parts: Sequence[tuple[int, int]]) -> None:
    """Have the engine run nodes `begin` up to but excluding `end` as one, for each part.

    All nodes of a part must be on one context, and the executor must not have run.

    Raises GraphError if MXNet refuses.
    """
    if _library is None or not _runs_parts or not parts:
        return
    numbers = ctypes.c_size_t * len(parts)
    begins, ends = (numbers(*each) for each in zip(*parts))
    reason = _library.TofuJoinNodes(executor.handle, begins, ends, ctypes.c_size_t(len(parts)))
    if reason is not None:
        raise GraphError(f"joining operators of a graph: MXNet refused: {reason.decode()}")


def run_whole(executor: mx.executor.Executor, *, is_train: bool) -> None:
    """Run an executor that has no gradient graph of MXNet's. Raises GraphError or MXNetError."""
    if _labels is None:
        executor.forward(is_train=is_train)
    else:
        run_part(executor, 0, _labels.count(executor), is_train=is_train)


def _push(executor: mx.executor.Executor, begin: int, end: int, is_train: bool) -> None:
    if _library is None or not _runs_parts:
        raise InternalError("run_part: this MXNet has no such function, see runs_parts()")
    reason = _library.TofuRunPart(
        executor.handle, int(is_train), ctypes.c_size_t(begin), ctypes.c_size_t(end)
    )
    if reason is not None:
        raise GraphError(f"running a part of a graph: MXNet refused: {reason.decode()}")


@contextlib.contextmanager
def untaught() -> Iterator[None]:
    """Let MXNet infer by itself in this context, without shapes that a thread has taught it."""
    with _lock:
        yield


@contextlib.contextmanager
def taught(outputs: Mapping[str, Sequence[tuple[Shape, int]]]) -> Iterator[None]:
    """Teach MXNet shapes in this context, so that graphs can be bound: those of `outputs`.

    outputs: node name -> (shape, type flag) of every output. Only backward operators
    without their own shape (type) function use it.
    """
    with _lock, environment(MXNET_ENVIRONMENT):
        library = _library
        if library is None:
            raise TofuError("tofu.mx.extension.load() has not been called")
        for name, entries in outputs.items():
            dims = [dim for shape, _ in entries for dim in shape]
            library.TofuTeachNode(
                name.encode(),
                len(entries),
                (ctypes.c_int * len(entries))(*(len(shape) for shape, _ in entries)),
                (ctypes.c_int64 * len(dims))(*dims),
                (ctypes.c_int * len(entries))(*(dtype for _, dtype in entries)),
            )
        library.TofuTeachBegin()
        try:
            yield
        finally:
            library.TofuTeachEnd()


def self_test() -> None:
    """Infer shapes and dtypes of taught operators; raise UnsupportedMXNetError if wrong.

    One operator has more dimensions than MXNet stores inside a shape object.
    """
    data, weight, head = (Node(VARIABLE, name) for name in ("data", "weight", "head"))
    dense = Node(
        "_backward_FullyConnected",
        "tofu_test_dense",
        {"num_hidden": "4", "no_bias": "True"},
        [Entry(head), Entry(data), Entry(weight)],
        num_outputs=2,
    )
    wide = Node(
        "_backward_Convolution",
        "tofu_test_wide",
        {"num_filter": "4", "kernel": "(1, 1, 1)", "no_bias": "True"},
        [Entry(head), Entry(data), Entry(weight)],
        num_outputs=2,
    )
    expected = [(2, 3), (4, 3), (2, 3, 5, 7, 11)]
    table = {
        dense.name: [(shape, _FLOAT64) for shape in expected[:2]],
        wide.name: [(shape, _FLOAT64) for shape in expected[2:] * 2],
    }
    try:
        symbol = Graph([Entry(dense, 0), Entry(dense, 1), Entry(wide)]).to_symbol()
        with taught(table):
            _, types, _ = symbol.infer_type(data="float64", weight="float64", head="float64")
            _, shapes, _ = symbol.infer_shape_partial(data=(2, 3), weight=(4, 3), head=(2, 4))
    except (mx.base.MXNetError, TofuError) as error:
        raise UnsupportedMXNetError(f"the self-test of shape teaching failed: {error}") from error
    if shapes != expected or types != [np.float64] * 3:
        raise UnsupportedMXNetError(
            f"the self-test of shape teaching found shapes {shapes} and types {types}, "
            f"expected {expected} and float64"
        )


def _fetch_problem() -> Optional[str]:
    """Fetch an array of a worker's own; return the problem if the result differs from it."""
    context = mx.cpu(1)  # on cpu(0) MXNet would search for subgraphs and log it
    tile = mx.nd.arange(4, ctx=context)
    spec = {"spec": "dtype=0 shape=4 sources=4; pieces=0@0>0:4"}
    fetch = Node("_tofu_multifetch", "tofu_test_fetch", spec, [Entry(Node(VARIABLE, "tile"))])
    try:
        symbol = Graph([Entry(fetch)]).to_symbol()
        region = symbol.bind(context, {"tile": tile}, grad_req="null").forward()[0].asnumpy()
    except mx.base.MXNetError as error:
        return f"a fetch failed: {error}"
    if region.tolist() != [0, 1, 2, 3]:
        return f"a fetch of the numbers 0 to 3 gave {region.tolist()}"
    return None


def _find_library() -> Path:
    places = [Path(__file__).parents[1]]
    spec = importlib.util.find_spec("tofu._core")
    if spec is not None and spec.origin is not None:
        places.insert(0, Path(spec.origin).parent)
    for place in places:
        if (place / _LIBRARY).is_file():
            return place / _LIBRARY
    raise UnsupportedMXNetError(
        f"{_LIBRARY} is not next to tofu's compiled module (looked in "
        f"{', '.join(map(str, places))}): reinstall mxnet-tofu"
    )


def _listed(function: Any) -> Iterator[str]:
    """The names that a library function returns for 0, 1, ... until it returns null."""
    function.restype = ctypes.c_char_p
    index = 0
    while (name := function(index)) is not None:
        yield name.decode()
        index += 1
