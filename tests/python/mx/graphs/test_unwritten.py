"""Finds MXNet's backward operators that leave an output unwritten if another one is not read.

tofu lowers these. If a new description or another MXNet adds such an operator, this test finds
it. A sample runs with the other tests, and all run with ``pytest --full``.
"""

import itertools

import mxnet as mx
import numpy as np
import pytest

from tofu.dtypes import dtype_flag
from tofu.mx.extension import is_stateful_backward, load, taught
from tofu.mx.graphs.lower import AFTER
from tofu.mx.nnvm import VARIABLE, Entry, Graph, Node
from tofu.verify.calls.operator_calls import shipped_cases
from tofu.verify.run.by_parts import Run

SEED = 5
SAMPLED = 20
UNWRITTEN = {
    "_backward_FullyConnected",
    "_backward_interleaved_matmul_selfatt_valatt",
    "_backward_interleaved_matmul_encdec_qk",
}
NOT_ALONE = {
    "_backward_BatchNorm": "has auxiliary states",
    "_backward_Deconvolution": "crashes, and is lowered",
    "_backward_take": "refuses to give the indices' gradient alone",
}
MARK = 12345


def backward_cases():
    load()
    found = [
        case
        for case in shipped_cases()
        if case.op.startswith("_backward")
        and case.op not in NOT_ALONE
        and not (is_stateful_backward(case.op) or case.imperative or case.in_place)
        and not (case.hide or case.numpy)
    ]
    for number, case in enumerate(found):
        sampled = number % SAMPLED == 0 or case.op in UNWRITTEN
        marks = () if sampled else pytest.mark.whole
        yield pytest.param(case, id=case.name, marks=marks)


def run_for(case, arrays, outputs, heads):
    """Some outputs, while no other output is read; MARK stands for unwritten elements."""
    node = Node(case.op, "op", dict(case.attrs), num_outputs=len(outputs))
    node.inputs = [Entry(Node(VARIABLE, f"x{k}")) for k in range(len(arrays))]
    symbol = Graph([Entry(node, head) for head in heads]).to_symbol()
    tensors = [(out.shape, dtype_flag(single(out).dtype.name)) for out in outputs]
    with taught({"op": tensors}):
        inputs = {f"x{k}": mx.nd.array(a, dtype=a.dtype) for k, a in enumerate(arrays)}
        executor = symbol.bind(mx.cpu(), inputs, grad_req="null")
    for output in executor.outputs:
        output[:] = MARK
    return [output.asnumpy() for output in executor.forward(is_train=True)]


def single(array):
    return array.astype("float32") if array.dtype == np.float64 else array


@pytest.mark.parametrize("case", list(backward_cases()))
def test_outputs_are_written_whatever_else_is_read(case):
    run = Run(case, SEED)
    count = len(run.outputs)
    if count == 1:
        pytest.skip("has one output")
    arrays = [single(array) for array in run.inputs]
    expected = run_for(case, arrays, run.outputs, range(count))
    wrong = set()
    for size in range(1, count):
        for heads in itertools.combinations(range(count), size):
            found = run_for(case, arrays, run.outputs, heads)
            for head, value in zip(heads, found):
                if not np.allclose(value, expected[head], rtol=1e-3, atol=1e-4, equal_nan=True):
                    wrong.add((heads, head))
    assert not wrong or case.op in UNWRITTEN, f"of the outputs read, wrong: {sorted(wrong)}"


def test_those_that_are_not_written_are_lowered():
    assert {lowering.op for lowering in AFTER} >= UNWRITTEN | {"_backward_Deconvolution"}
