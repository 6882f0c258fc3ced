"""Runs inside pytest for mxnet_tests.py: seeds the tests, and writes their outcomes.

MXNet 1.9.1's tests need nose, which does not run under Python 3.10 and later; this module stands in
for the functions of nose that they use.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import random
import sys
import types
import unittest
from typing import Any, Callable

import pytest

# Names that occur in code that makes a block.
_BLOCKS = {
    "Block",
    "HybridBlock",
    "SymbolBlock",
    "HybridSequential",
    "Sequential",
    "nn",
    "rnn",
    "hybridize",
}


def stand_in_for_nose() -> None:
    """Give the tests the parts of nose that they import."""
    tools = types.ModuleType("nose.tools")
    tools.assert_raises = unittest.TestCase().assertRaises  # type: ignore[attr-defined]
    tools.make_decorator = functools.wraps  # type: ignore[attr-defined]
    tools.raises = _raises  # type: ignore[attr-defined]
    tools.ok_ = unittest.TestCase().assertTrue  # type: ignore[attr-defined]
    nose = types.ModuleType("nose")
    nose.tools = tools  # type: ignore[attr-defined]
    sys.modules.update({"nose": nose, "nose.tools": tools})


def _raises(*expected: type[BaseException]) -> Callable[..., Any]:
    """The decorator of tests that have to end with an exception."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def test(*args: Any, **kwargs: Any) -> None:
            with pytest.raises(expected):
                function(*args, **kwargs)

        return test

    return decorate


def compute_in_float64() -> None:
    """Make every array and parameter float64 that would be float32."""
    import mxnet as mx

    for owner, names in (
        (mx.nd, ("array", "zeros", "ones", "full", "arange", "zeros_like", "ones_like")),
        (mx.nd.random, ("uniform", "normal", "randn")),
        (mx.random, ("uniform", "normal", "randn")),
    ):
        for name in names:
            setattr(owner, name, _widened(getattr(owner, name)))
    original_init = mx.gluon.Parameter.__init__

    @functools.wraps(original_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        if self.dtype in ("float32", _float32()):
            self.dtype = "float64"

    mx.gluon.Parameter.__init__ = init


def _widened(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def widened(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        is_own = kwargs.get("out") is None and result.dtype == _float32()
        return result.astype("float64") if is_own else result

    return widened


def _float32() -> Any:
    import numpy as np

    return np.float32


class Recorder:
    """Writes one line of JSON when a test begins, and one when it ends."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seed = int(os.environ["MXNET_TEST_SEED"])
        self._blocks: list[dict[str, Any]] = []

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._blocks = []
        self._write(test=nodeid, outcome="begins")
        self._seed_all()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test, or its set-up, has ended."""
        if report.when != "call" and report.outcome == "passed":
            return
        self._write(
            test=report.nodeid,
            outcome=report.outcome,
            reason="" if report.outcome == "passed" else _reason(report),
            seconds=round(report.duration, 2),
            blocks=self._blocks,
        )

    def watch(self) -> None:
        """Count the blocks that tofu partitions and refuses."""
        from tofu.gluon.session import block_report, messages

        for module, name, kind in (
            (block_report, "partitioned", "partitioned"),
            (messages, "warn_serial", "serial"),
            (messages, "check_eager", "eager"),
        ):
            setattr(module, name, self._watched(kind, getattr(module, name)))

    def _watched(self, kind: str, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def watched(block: Any, what: Any, *args: Any, **kwargs: Any) -> None:
            first = kwargs.get("first", True)
            name = block.name if kind == "partitioned" else block  # the others get a name only
            reason = what if kind == "serial" else "not hybridized" if kind == "eager" else ""
            if first:
                self._blocks.append({"block": name, "kind": kind, "reason": reason})
            original(block, what, *args, **kwargs)

        return watched

    def _seed_all(self) -> None:
        import mxnet as mx
        import numpy as np

        random.seed(self._seed)
        np.random.seed(self._seed)
        mx.random.seed(self._seed)

    def _write(self, **record: Any) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def _reason(report: Any) -> str:
    if report.outcome == "skipped":
        return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return str(text)[:2000]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that have run. pytest's --deselect would drop all that begin with a name."""
    skipped = set(json.loads(os.environ.get("MXNET_TESTS_SKIP", "[]")))
    is_training_only = os.environ.get("MXNET_TESTS_TRAINING") == "1"
    selected, left_out = [], []
    for item in items:
        is_run = item.nodeid not in skipped and (not is_training_only or trains_a_block(item))
        (selected if is_run else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = selected


def trains_a_block(item: Any) -> bool:
    """Whether a test's code, or a function of its file that it calls, records and names a block."""
    names: set[str] = set()
    _add_names(inspect.unwrap(item.function).__code__, item.module, names)
    return "record" in names and not names.isdisjoint(_BLOCKS)


def _add_names(code: types.CodeType, module: types.ModuleType, names: set[str]) -> None:
    new = {*code.co_names, *code.co_freevars} - names
    names |= new
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            _add_names(const, module, names)
    for name in new:
        called = inspect.unwrap(getattr(module, name, None))
        if inspect.isclass(called):
            names |= {each.__name__ for each in called.__mro__}
        if inspect.isfunction(called) and called.__module__ == module.__name__:
            _add_names(called.__code__, module, names)


def pytest_configure(config: pytest.Config) -> None:
    """Prepare MXNet before pytest imports the tests."""
    stand_in_for_nose()
    import mxnet  # noqa: F401 - the switch works when it is imported

    if os.environ.get("MXNET_TESTS_FLOAT64") == "1":
        compute_in_float64()
    recorder = Recorder(os.environ["MXNET_TESTS_RECORD"])
    if os.environ.get("MXNET_GRAPH_PASS"):
        recorder.watch()
    config.pluginmanager.register(recorder)
