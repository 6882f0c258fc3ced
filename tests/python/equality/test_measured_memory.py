"""The fullest worker of a run holds a k-th of what one worker holds, and little more, as measured.

The worker is the first, whose tiles are the largest. docs/results/odd_sizes.md has the figures.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .measured_memory import LARGER

ROOT = Path(__file__).resolve().parents[3]
WORKERS = (3, 5, 7)
MOST = 1.12  # of one worker's memory over k


@functools.cache
def measured_mib(name, workers):
    module = "tests.python.equality.measured_memory"
    # Contexts of pinned memory share threads with others, on which fetches wait.
    threads = {"MXNET_CPU_WORKER_NTHREADS": "4", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", module, name, str(workers), "0"],
        cwd=ROOT,
        env={**os.environ, **threads},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return float(ran.stdout)


def cases():
    for name in LARGER:
        for workers in WORKERS:
            marks = () if (name, workers) == ("rnn-10-8k", 3) else pytest.mark.whole
            yield pytest.param(name, workers, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "workers"), list(cases()))
def test_the_first_worker_holds_its_part(name, workers):
    share = measured_mib(name, 1) / workers
    assert 0.9 * share < measured_mib(name, workers) < MOST * share
