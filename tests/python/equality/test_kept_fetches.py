"""Fetched regions that workers keep for the backward pass give what fetching again gives."""

import functools
import json

import numpy as np
import pytest

import tofu
from tofu.cli import main
from tofu.config import Config
from tofu.errors import ConfigError
from tofu.mx.run import extension
from tofu.plan import observe

from .models import CASES, train

STEPS = 3
TOLERANCES = {"float64": 1e-9, "float32": 2e-5}


@functools.cache
def serial(model, dtype):
    return train(CASES[model], dtype, STEPS)


def partitioned(model, dtype, workers, kept):
    seen = []
    with observe(seen.append):
        tofu.enable(
            workers=workers, device="cpu", log="quiet", fetch="multifetch", keep_fetched=kept
        )
        try:
            return train(CASES[model], dtype, STEPS), seen[0]
        finally:
            tofu.disable()


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


def test_the_setting_is_a_size():
    assert Config.from_environment({}).keep_fetched_bytes == 0
    assert Config.from_environment({"TOFU_KEEP_FETCHED": "2MiB"}).keep_fetched_bytes == 2 << 20
    with pytest.raises(ConfigError, match=r"^TOFU_KEEP_FETCHED="):
        Config.from_environment({"TOFU_KEEP_FETCHED": "much"})


def test_the_command_counts_what_is_kept(capsys, monkeypatch):
    for name in ("TOFU_KEEP_FETCHED", "TOFU_WORKERS", "MXNET_GRAPH_PASS"):
        monkeypatch.setenv(name, "")  # what the command sets is undone

    def planned(*options):
        given = ["plan", "--workers=2", "--batch-size=64", "--format=json", *options, "mlp"]
        with pytest.raises(SystemExit) as ended:
            main.main([*given[:-1], "--fetch=multifetch", given[-1]])
        assert not ended.value.code
        return json.loads(capsys.readouterr().out)

    plain, kept = planned(), planned("--keep-fetched=1GiB")
    assert kept["shared_bytes"] > plain["shared_bytes"]
    assert kept["total_bytes"] == plain["total_bytes"]
