"""Keeping fetched regions for the backward pass gives the same results as fetching again."""

import functools
import json

import numpy as np
import pytest

import tofu
from tofu.cli import main
from tofu.config import Config
from tofu.errors import ConfigError
from tofu.gluon.session.session import looking
from tofu.mx import extension
from tofu.mx.model.sources import from_model
from tofu.planner.decide import plan_problem
from tofu.planner.limits import Fit, held_bytes, keep_what_fits
from tofu.planner.wish import Wish
from tofu.plans import SearchOptions

from .models import CASES, train

STEPS = 3
TOLERANCES = {"float64": 1e-9, "float32": 2e-5}


@pytest.fixture
def two_workers():
    return from_model("mlp", workers=2, batch_size=64, optimizer="sgd")


@functools.cache
def serial(model, dtype):
    return train(CASES[model], dtype, STEPS)


def partitioned(model, dtype, workers, kept, **options):
    seen = []
    tofu.enable(
        workers=workers,
        device="cpu",
        log="quiet",
        fetch="multifetch",
        keep_fetched=kept,
        **options,
    )
    try:
        with looking(compiled=seen.append):
            found = train(CASES[model], dtype, STEPS)
    finally:
        tofu.disable()
    # The net's last program; the loss's own program fetches nothing.
    return found, [each for each in seen if each.fetched_bytes][-1]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("joint", [True, False], ids=["one executor", "two executors"])
@pytest.mark.parametrize(("model", "workers"), [("mlp", 2), ("residual_cnn", 4)])
def test_kept_regions_leave_losses_and_weights_as_they_are(
    model, workers, joint, dtype, monkeypatch
):
    monkeypatch.setattr(extension, "runs_parts", lambda: joint)
    expected, expected_weights = serial(model, dtype)
    (losses, weights), kept = partitioned(model, dtype, workers, "64MiB")
    plain = partitioned(model, dtype, workers, None)[1]
    assert kept.shared_bytes > plain.shared_bytes
    assert kept.fetched_bytes + kept.shared_bytes == plain.fetched_bytes + plain.shared_bytes
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(losses, expected, rtol=tolerance, atol=tolerance)
    assert weights.keys() == expected_weights.keys()
    for name, value in weights.items():
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_run_keeps_what_its_memory_limit_allows(dtype):
    expected, expected_weights = serial("residual_cnn", dtype)
    limit = {"memory": "100MiB", "allow_replication": False}
    none = partitioned("residual_cnn", dtype, 2, None, **limit)[1]
    (losses, weights), kept = partitioned("residual_cnn", dtype, 2, "auto", **limit)
    assert kept.shared_bytes > none.shared_bytes
    assert kept.plan.total_bytes == none.plan.total_bytes
    tolerance = TOLERANCES[dtype]
    np.testing.assert_allclose(losses, expected, rtol=tolerance, atol=tolerance)
    for name, value in weights.items():
        np.testing.assert_allclose(
            value, expected_weights[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


def test_a_plan_keeps_what_its_memory_limit_allows(two_workers):
    def planned(size, limit):
        options = SearchOptions(keep_fetched_bytes=size, allow_replication=False)
        return plan_problem(two_workers, Wish(options, limit, fetch="multifetch"))[1]

    none = planned(0, 1 << 40)
    assert none.bytes_per_worker == planned(None, held_bytes(none)).bytes_per_worker
    everything = planned(None, 1 << 40)
    assert everything.fetched_bytes < none.fetched_bytes
    assert everything.total_bytes == none.total_bytes
    assert held_bytes(none) < held_bytes(everything)
    less = planned(None, held_bytes(everything) - 1)
    assert less.fetched_bytes == none.fetched_bytes


def test_what_is_kept_shrinks_until_it_fits():
    asked = []

    def keep(size):
        asked.append(size)
        return 1000 + size + 30

    fit = keep_what_fits(Fit(1000, 1000, True), keep, int, 1400)
    assert (asked, fit) == ([400, 300], Fit(1330, 1330, True))
    for unfit in (Fit(1500, 1500, False), Fit(1400, 1400, True)):
        assert keep_what_fits(unfit, keep, int, 1400) is unfit
    assert asked == [400, 300]


def test_the_setting_is_a_size():
    assert Config.from_environment({}).keep_fetched_bytes == 0
    assert Config.from_environment({"TOFU_KEEP_FETCHED": "2MiB"}).keep_fetched_bytes == 2 << 20
    found = Config.from_environment({"TOFU_KEEP_FETCHED": "Auto", "TOFU_MEMORY": "1GiB"})
    assert found.keep_fetched_bytes is None
    with pytest.raises(ConfigError, match=r"^TOFU_KEEP_FETCHED=auto: expected TOFU_MEMORY as well"):
        Config.from_environment({"TOFU_KEEP_FETCHED": "auto"})
    with pytest.raises(ConfigError, match=r"^TOFU_KEEP_FETCHED="):
        Config.from_environment({"TOFU_KEEP_FETCHED": "much"})


def test_the_command_counts_what_is_kept(capsys, monkeypatch):
    for name in ("TOFU_KEEP_FETCHED", "TOFU_MEMORY", "TOFU_WORKERS", "MXNET_GRAPH_PASS"):
        monkeypatch.setenv(name, "")  # makes monkeypatch undo what the command sets

    def planned(*options):
        given = ["plan", "--workers=2", "--batch-size=64", "--format=json", *options, "mlp"]
        with pytest.raises(SystemExit) as ended:
            main.main([*given[:-1], "--fetch=multifetch", given[-1]])
        assert not ended.value.code
        return json.loads(capsys.readouterr().out)

    plain, kept = planned(), planned("--keep-fetched=1GiB")
    assert kept["shared_bytes"] > plain["shared_bytes"]
    assert kept["total_bytes"] == plain["total_bytes"]
    monkeypatch.setenv("TOFU_REPLICATION", "0")
    monkeypatch.setenv("TOFU_KEEP_FETCHED", "")
    within_limit = planned("--memory=100GiB")
    automatic = planned("--memory=100GiB", "--keep-fetched=auto")
    assert automatic["shared_bytes"] > within_limit["shared_bytes"]
