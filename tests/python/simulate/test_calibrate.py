"""What tofu calibrate makes of its measurements."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tofu import _core
from tofu.analysis.work import KINDS
from tofu.models import find
from tofu.simulate.calibrate import Measured, calibrate, machine_document, rate_tables
from tofu.simulate.measure import Engine

ENGINE = Engine(push_s=1e-6, launch_s=2e-6)
COPIES = [(1024, 1, 1e-6), (4096, 1, 2e-6), (4096, 2, 4e-6)]


def entry(measured: list[Measured], kind: str, op: str = "") -> dict[str, Any]:
    (found,) = (e for e in rate_tables(measured) if (e["kind"], e.get("op", "")) == (kind, op))
    return found


def test_a_point_is_the_median_of_calls_of_similar_size() -> None:
    amounts = [(5000.0, 1e-6), (6000.0, 2e-6), (7000.0, 7e-6), (1e6, 1e-4)]
    measured = [Measured("tanh", ("elementwise", 1.0, b), s) for b, s in amounts]
    assert entry(measured, "elementwise", "tanh")["bytes_per_s"] == [[6000, 3e9], [1e6, 1e10]]


def test_products_are_measured_by_their_operations() -> None:
    measured = [
        Measured("dot", ("product", 1e6, 1e4), 1e-3),
        Measured("batch_dot", ("product", 1e6, 1e4), 3e-3),
    ]
    assert entry(measured, "product", "dot")["flops_per_s"] == [[1e6, 1e9]]
    (rate,) = entry(measured, "product")["flops_per_s"]
    assert rate[1] == pytest.approx((1e9 + 1e9 / 3) / 2, rel=1e-3)


def test_operators_too_small_to_measure_are_left_out() -> None:
    measured = [Measured("tanh", ("elementwise", 1.0, 100.0), 1e-9)]
    assert all(e.get("op") != "tanh" for e in rate_tables(measured))


def test_every_kind_has_a_table_whatever_was_measured() -> None:
    measured = [Measured("tanh", ("elementwise", 1e4, 1e4), 1e-6)]
    document = machine_document(ENGINE, measured, 4, [1, 0.5], COPIES)
    machine = _core.Machine(json.dumps(document))
    assert machine.measured
    for kind in KINDS:
        assert machine.operator_seconds("x", (kind, 1e4, 1e4)) > 0
    assert machine.operator_seconds("tanh", ("elementwise", 1.0, 1e4)) == pytest.approx(1e-6)
    (link,) = document["links"]
    assert link["bytes_per_s"] == [[1024, 1.024e9], [4096, 2.048e9]]
    assert link["group_bytes_per_s"] == pytest.approx(2 * 4096 / 4e-6, rel=1e-3)
    assert document["host"] == {"cores": 4, "push_s": 1e-6, "speed_at_once": [1, 0.5]}
    assert document["device"]["launch_s"] == 2e-6


def test_the_calls_of_a_model_are_measured() -> None:
    document = calibrate(models=[(find("mlp"), 64, True)])
    measured = {(e["kind"], e.get("op")) for e in document["operators"]}
    assert ("elementwise", "sgd_mom_update") in measured
    assert ("elementwise", "adam_update") in measured
    assert any(op == "_backward_FullyConnected" for _, op in measured)
    assert 0 < document["device"]["launch_s"] < 1
    assert _core.Machine(json.dumps(document)).devices >= 8
