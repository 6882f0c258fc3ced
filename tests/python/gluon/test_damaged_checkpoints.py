"""Damaged parameters and states are loaded or refused as by plain MXNet, and training goes on.

Takes a sample by default, and 5,000 files with --full.
"""

from __future__ import annotations

import os
import pathlib
import random

import pytest

from ..cli.test_mutations import damaged
from ..support import forked

SCRIPT = pathlib.Path(__file__).with_name("load_damaged.py")
FULL, SAMPLE = 5000, 12
SWITCH = {"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": "3", "TOFU_LOG": "quiet", "TOFU_STRICT": "1"}


def run(folder: pathlib.Path, *first: int, **variables: str) -> tuple[int, list[str]]:
    """The script's status and the lines that it prints."""
    env = {**os.environ, **variables}
    done = forked.run([SCRIPT, folder, *first], env=env, cwd=folder, timeout=1500)
    assert done.returncode != 1, done.stderr[-4000:]
    return done.returncode, done.stdout.splitlines()


def outcomes(folder: pathlib.Path, **variables: str) -> list[str]:
    """The outcome of each file; MXNet itself crashes on some states."""
    files, told = sorted(folder.glob("[0-9]*")), list[str]()
    while len(told) < len(files):
        status, lines = run(folder, len(told), **variables)
        told += lines
        if status:
            told.append(f"{files[len(told)].name} crashes")
    return told


@pytest.mark.parametrize("kind", ["params", "states"])
def test_a_damaged_checkpoint_is_taken_or_refused_as_by_mxnet(kind, tmp_path, full):
    assert run(tmp_path)[0] == 0
    whole = (tmp_path / f"whole.{kind}").read_bytes()
    count = (FULL if full else SAMPLE) // 2
    for seed in range(count):
        data = damaged(whole, random.Random(f"{kind} {seed}"))
        (tmp_path / f"{seed:05d}.{kind}").write_bytes(data)
    assert outcomes(tmp_path, **SWITCH) == outcomes(tmp_path)
