"""Descriptions say which operators write to their inputs, as MXNet's do to auxiliary states."""

import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from tofu.analysis.table import keeps_state
from tofu.mx.graphs.replay import _symbol
from tofu.verify.calls.operator_calls import cases_by_operator


def _auxiliary_states(case):
    try:
        return _symbol(case.op, case.attrs, len(case.inputs)).list_auxiliary_states()
    except mx.base.MXNetError:
        return []  # not an operator of graphs


def test_operators_with_auxiliary_states_are_stateful():
    found = {
        op
        for op, cases in cases_by_operator().items()
        if any(_auxiliary_states(case) for case in cases if case.forward is None)
    }
    assert found >= {"BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm"}
    assert {op for op in found if not keeps_state(op, {})} == set()


def test_a_state_that_is_no_input_is_described():
    assert keeps_state("RNN", {})
    assert keeps_state("Custom", {"op_type": "mine"})  # nothing is known of it
    assert not keeps_state("FullyConnected", {})
    assert not keeps_state("an operator without a description", {})
