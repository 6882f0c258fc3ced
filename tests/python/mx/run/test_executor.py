"""The settings with which executors are bound."""

import types

import mxnet as mx
import pytest

from tofu.mx.extension import MATCH_RANGE, SEARCH_MATCH_RANGE
from tofu.mx.run import executor

ANY = {SEARCH_MATCH_RANGE: "1"}


@pytest.mark.parametrize("copies", [False, True])
def test_blocks_are_reused_where_copies_between_contexts_are_safe(copies):
    graph = types.SimpleNamespace(has_copies=copies)
    on_cpus = executor.planner_settings(graph, [mx.cpu(0), mx.cpu(1)])
    assert on_cpus == ({MATCH_RANGE: "0"} if copies else ANY)
    assert executor.planner_settings(graph, [mx.gpu(0), mx.gpu(1)]) == ANY
