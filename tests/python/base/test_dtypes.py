"""Data types: one table, the same in Python, in C++ and in MXNet."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tofu.dtypes import NAMES, dtype_bytes, dtype_flag, dtype_name
from tofu.errors import GraphError

SOURCE = Path(__file__).parents[3] / "src" / "graph" / "graph.cc"


def test_sizes_are_numpys():
    for flag, name in enumerate(NAMES):
        if name != "bfloat16":
            assert dtype_bytes(flag) == np.dtype(name).itemsize
    assert dtype_bytes(dtype_flag("bfloat16")) == 2


def test_flags_are_mxnets():
    mx = pytest.importorskip("mxnet")
    flags = {k: f for k, f in mx.ndarray._DTYPE_NP_TO_MX.items() if k is not None}
    for kind, flag in flags.items():
        name = np.dtype(kind).name
        assert dtype_name(flag) == ("bfloat16" if name.startswith("void") else name)
    assert [dtype_flag(name) for name in NAMES] == list(range(len(NAMES)))


def graph(dtype):
    return json.dumps(
        {
            "nodes": [
                {"op": "null", "name": "x", "inputs": []},
                {"op": "transpose", "name": "y", "inputs": [[0, 0, 0]]},
            ],
            "arg_nodes": [0],
            "node_row_ptr": [0, 1, 2],
            "heads": [[1, 0, 0]],
            "attrs": {
                "shape": ["list_shape", [[8, 6], [6, 8]]],
                "dtype": ["list_int", [dtype, dtype]],
                "tofu_heads": ["list_str", ["output:0"]],
            },
        }
    )


@pytest.mark.parametrize("flag", range(len(NAMES)))
def test_the_passes_have_the_same_sizes(flag):
    """If a transpose is cut by rows on both sides, each of two workers fetches a quarter."""
    core = pytest.importorskip("tofu._core")
    from tofu.analysis.strategy_table import strategy_table

    table, _ = strategy_table(core.Graph(graph(flag)))
    assert table.graph.tensor_bytes == 2 * 8 * 6 * dtype_bytes(flag)
    plan = core.plan(table, workers=2, pins={"x": [0], "y": [0]})
    assert plan.total_bytes == 8 * 6 // 2 * dtype_bytes(flag)


def test_there_are_no_others():
    with pytest.raises(GraphError, match="dtype 15: expected MXNet's type flag, 0 to 14"):
        dtype_name(len(NAMES))
    with pytest.raises(GraphError, match="dtype -1: expected MXNet's type flag"):
        dtype_bytes(-1)
    with pytest.raises(GraphError, match="dtype float128: expected one of float32, float64,"):
        dtype_flag("float128")
    sizes = re.search(r"kDtypeBytes\[\] = \{([\d, ]+)\}", SOURCE.read_text(encoding="utf-8"))
    assert sizes is not None and len(sizes.group(1).split(",")) == len(NAMES)
