"""The machine file that tofu calibrate makes from its measurements."""

from __future__ import annotations

import json
from typing import Any

import mxnet as mx
import pytest

from tofu import _core
from tofu.analysis.work import KINDS
from tofu.models import build, find
from tofu.simulate.calibrate import Measured, calibrate, machine_document, rate_tables
from tofu.simulate.measure import Engine, node_seconds

ENGINE = Engine(push_s=1e-6, launch_s=2e-6)
COPIES = [(1024, 1, 1e-6), (4096, 1, 2e-6), (4096, 2, 4e-6)]


def entry(measured: list[Measured], kind: str, op: str = "") -> dict[str, Any]:
    (found,) = (e for e in rate_tables(measured) if (e["kind"], e.get("op", "")) == (kind, op))
    return found


def seconds(measured: list[Measured], op: str, work: tuple[str, float, float]) -> float:
    """The seconds that a machine with these measurements predicts for a call."""
    document = machine_document(ENGINE, measured, 4, [1], COPIES)
    return _core.Machine(json.dumps(document)).operator_seconds(op, work)


def test_a_call_takes_what_it_took() -> None:
    amounts = [(5000.0, 1e-6), (60000.0, 2e-6), (1e6, 1e-4)]
    measured = [Measured("tanh", ("elementwise", b / 4, b), s) for b, s in amounts]
    rows = [[b / 4, b, s] for b, s in amounts]
    assert entry(measured, "elementwise", "tanh")["calls"] == rows
    for amount, taken in amounts:
        found = seconds(measured, "tanh", ("elementwise", amount / 4, amount))
        assert found == pytest.approx(taken, rel=0.01)


def test_calls_of_equal_flops_take_longer_with_more_bytes() -> None:
    # 1 GFLOP/s and 0.1 GB/s: with large weights the bytes take longer.
    works = [(f, b) for f in (1e6, 1e7, 1e8) for b in (1e5, 1e6, 1e7)]
    measured = [Measured("dot", ("product", f, b), f / 1e9 + b / 1e8) for f, b in works]
    assert entry(measured, "product", "dot")["flops_per_byte"] == 16.0  # near 10
    for flops, size in ((3e6, 3e5), (3e6, 5e6), (5e7, 3e6)):
        found = seconds(measured, "dot", ("product", flops, size))
        assert found == pytest.approx(flops / 1e9 + size / 1e8, rel=0.35)


def test_a_call_does_not_predict_itself() -> None:
    works = [(f, b) for f in (1e6, 1e8) for b in (1e4, 1e6)]
    measured = [Measured("dot", ("product", f, b), f / 1e9 + 16 * b / 1e9) for f, b in works]
    # If the two similar calls predicted each other, the other four would not count.
    measured += [Measured("dot", ("product", 1e7, size), 1e-2) for size in (1e5, 1.5e5)]
    assert entry(measured, "product", "dot")["flops_per_byte"] == 4.0


def test_operators_of_a_kind_share_what_is_known_of_others() -> None:
    measured = [
        Measured("dot", ("product", 1e6, 1e4), 1e-3),
        Measured("batch_dot", ("product", 1e6, 1e4), 4e-3),
    ]
    assert seconds(measured, "dot", ("product", 1e6, 1e4)) == pytest.approx(1e-3, rel=0.01)
    assert seconds(measured, "other_dot", ("product", 1e6, 1e4)) == pytest.approx(2e-3, rel=0.01)


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
    assert document["device"]["synchronize_s"] == 0  # the host waits for no CPU


def test_a_call_that_only_moves_data_takes_what_its_bytes_take() -> None:
    measured = [Measured("transpose", ("movement", 0.0, size), size / 1e9) for size in (1e5, 4e5)]
    found = seconds(measured, "transpose", ("movement", 0.0, 2e5))
    assert found == pytest.approx(2e5 / 1e9, rel=0.1)


def test_the_calls_of_a_model_are_measured() -> None:
    document = calibrate(models=[(find("mlp"), 64, True)])
    measured = {(e["kind"], e.get("op")) for e in document["operators"]}
    assert ("elementwise", "sgd_mom_update") in measured
    assert ("elementwise", "adam_update") in measured
    assert any(op == "_backward_FullyConnected" for _, op in measured)
    assert 0 < document["device"]["launch_s"] < 1
    assert _core.Machine(json.dumps(document)).devices >= 8


@pytest.mark.parametrize(("optimizer", "momentum"), [("sgd", None), ("sgd_mom", 0.9)])
def test_updates_are_measured_as_a_trainer_makes_them(
    optimizer: str, momentum: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = getattr(mx.nd, f"multi_{optimizer}_update")

    def spy(*arrays: Any, **options: Any) -> Any:
        calls.append((arrays, options))
        return original(*arrays, **options)

    monkeypatch.setattr(mx.nd, f"multi_{optimizer}_update", spy)
    graph = build(find("mlp"), 8, reduced=True).training_graph(optimizer=optimizer)
    nodes = _core.OperatorCalls(graph).nodes
    node = next(each for each in nodes if each.op == f"{optimizer}_update")
    assert node_seconds(node, ENGINE) > 0
    arrays, options = calls[0]
    assert [array.shape for array in arrays] == [tuple(shape) for shape, _ in node.inputs]
    assert options["out"] == [arrays[0]]
    assert options["num_weights"] == 1
    assert options.get("momentum") == momentum
    assert len({id(arrays[0]) for arrays, _ in calls}) > 1, "not always in a cache"
