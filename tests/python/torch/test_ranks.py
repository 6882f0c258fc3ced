"""Tests see why a rank ended."""

from __future__ import annotations

import os

import pytest

from .ranks import on_ranks


def abort(file: str) -> None:
    os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), 2)
    os.abort()


def test_a_rank_that_a_signal_ends_says_where(tmp_path) -> None:
    with pytest.raises(AssertionError, match="rank 0: the process ended with -6"):
        on_ranks(1, abort, str(tmp_path / "stderr"))
    said = (tmp_path / "stderr").read_text()
    assert "Fatal Python error: Aborted" in said and "in abort" in said
