"""Torch's own samples of its operators, whole and in parts.

A bounded number of them; benchmarks/torch_operators.py runs all.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("expecttest", reason="torch's samples need the package expecttest")

# Of each: a description, or a kind of sample, for which a run found a fault.
OPERATORS = (
    *("nn.functional.adaptive_max_pool2d", "polar", "masked.log_softmax", "scatter_add", "mm"),
    *("index_copy", "logsumexp", "cummax", "diagonal", "unfold", "histc", "cdist", "lu", "isin"),
    *("dist", "renorm", "linalg.cross", "nn.functional.bilinear", "new_empty_strided"),
)


@pytest.mark.filterwarnings("ignore")  # of torch's own samples
def test_parts_of_samples_are_the_whole(import_script: Any) -> None:
    benchmark = import_script("torch_operators")
    torch.set_num_threads(1)
    known = {each.full_name: each for each in benchmark.op_db}
    rows = [benchmark.measured(known[name]) for name in OPERATORS]
    assert [text for row in rows for text in row["false"]] == []
    assert [row["operator"] for row in rows if not row["calls"]] == []
    text = benchmark.lines(rows)
    assert text[0] == "19 operators of torch, 0 of which no sample can be traced"
    left = "aten.linalg_lu_factor_ex.default, aten.view_as_real.default"  # one matrix; complex
    assert text[-1] == f"not described: {left}"
