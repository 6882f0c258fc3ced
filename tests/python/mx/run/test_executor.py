"""The settings with which executors are bound."""

import types

import mxnet as mx
import pytest

from tofu.mx.extension import MATCH_RANGE, SEARCH_MATCH_RANGE
from tofu.mx.run import executor

ANY = {SEARCH_MATCH_RANGE: "1"}
BLOCKED = (1, 4, 2, 2)  # enough dimensions for a layout of oneDNN's own, and 16 numbers


@pytest.mark.parametrize(
    ("crossing", "shapes", "expected"),
    [
        ([], [BLOCKED], {MATCH_RANGE: "1"}),
        ([], [(1, 1, 1, 1), (9,)], ANY),
        ([(2,), (16,), (3,)], [BLOCKED], {MATCH_RANGE: "0"}),  # the largest counts
        ([(16,), (2,)], [BLOCKED, (8, 8, 8, 8)], {MATCH_RANGE: "0"}),
        ([(2,), (15,), (3,)], [BLOCKED], {MATCH_RANGE: "1"}),
        ([(2,)], [(64, 64, 64, 64)], ANY),
        ([(2, 2)], [(64, 64, 64, 64)], {MATCH_RANGE: "0"}),
        ([(executor._MATCH_RANGE + 1,), (1,)], [], {MATCH_RANGE: "0"}),
        ([(executor._MATCH_RANGE,), (1,)], [], ANY),
    ],
)
def test_the_match_range_is_safe_for_copies_between_contexts(crossing, shapes, expected):
    graph = types.SimpleNamespace(crossing_shapes=crossing, shapes=shapes)
    assert executor.planner_settings(graph, [mx.cpu(0), mx.cpu(1)]) == expected
    assert executor.planner_settings(graph, [mx.gpu(0), mx.gpu(1)]) == ANY
