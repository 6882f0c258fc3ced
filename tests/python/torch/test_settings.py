"""The TOFU_* variables, as ``tofu.torch`` has them."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.errors import ConfigError, MemoryLimitError, TofuError
from tofu.torch.commands.models import MODELS

from .ranks import on_ranks
from .test_whole_calls import Chooses


def mlp() -> Any:
    return MODELS["mlp"](torch.float32)


def test_a_plan_takes_what_its_arguments_leave_out(monkeypatch) -> None:
    model, inputs = mlp()
    monkeypatch.setenv("TOFU_SEARCH", "data-parallel")
    monkeypatch.setenv("TOFU_RECOMPUTE", "all")
    assert tofu.torch.plan(model, inputs, mesh=(2,)).details.mode == "data-parallel"
    monkeypatch.setenv("TOFU_MEMORY", "1000B")
    with pytest.raises(MemoryLimitError, match="no plan over 2 workers"):
        tofu.torch.plan(model, inputs, mesh=(2,))
    made = tofu.torch.plan(model, inputs, mesh=(2,), memory="1GiB", recompute="none")
    assert made.details.recompute is None
    with pytest.raises(ConfigError, match=r"tofu\.torch\.plan: memory=much: "):
        tofu.torch.plan(model, inputs, mesh=(2,), memory="much")
    with pytest.raises(ConfigError, match=r"tofu\.torch\.plan: recompute=.?some"):
        tofu.torch.plan(model, inputs, mesh=(2,), recompute="some")


def told(level: str, folder: str) -> str:
    """The lines of two kinds of call of a module."""
    lines = io.StringIO()
    words = {"TOFU_LOG": f"{level},dump:{folder}", "TOFU_CACHE": "0"}
    with mock.patch.dict("os.environ", words), contextlib.redirect_stderr(lines):
        model, inputs = mlp()
        parts = tofu.torch.parallelize(model, (2,), inputs)
        parts(*(each[:6] for each in inputs))
    return lines.getvalue()


def lines(folder: str) -> None:
    quiet, info, debug = (told(level, folder) for level in ("quiet", "info", "debug"))
    assert quiet == ""
    if torch.distributed.get_rank() > 0:
        assert info == debug == ""
        return
    assert info.startswith("tofu: _Mlp (") and info.count("\n") == 1
    assert " over 2 ranks (2, cpu): " in info and "KiB communicated per step" in info
    assert ", search 0.0" in info
    assert debug.startswith(info.partition(", search")[0]) and debug.count("tofu: _Mlp (") == 2
    assert any(Path(folder).iterdir())


def test_rank_0_tells_of_each_program_by_its_level(tmp_path) -> None:
    on_ranks(2, lines, str(tmp_path))


def strict() -> None:
    torch.manual_seed(0)
    data = torch.randn(4, 8)
    with mock.patch.dict("os.environ", {"TOFU_STRICT": "1"}):
        parts: Any = tofu.torch.parallelize(Chooses(), (2,), (data,))
    parts.by_data = True
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConfigError, match=r"Chooses: .* as TOFU_STRICT requires: .* whole"):
            parts(data)
    parts.by_data = False
    assert parts(data).shape == (4, 8)


def wrong() -> None:
    words = {} if torch.distributed.get_rank() else {"TOFU_STRICT": "perhaps"}
    with mock.patch.dict("os.environ", words), pytest.raises(TofuError, match="TOFU_STRICT"):
        tofu.torch.parallelize(nn.Linear(4, 4), (2,), (torch.ones(2, 4),))


def test_calls_that_would_run_whole_are_errors_if_the_user_says_so() -> None:
    on_ranks(2, strict)
    on_ranks(2, wrong)
