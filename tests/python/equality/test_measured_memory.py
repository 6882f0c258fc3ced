"""By measurement, the fullest worker holds little more than a k-th of a single worker's memory.

The worker is the first, whose tiles are the largest. docs/results/odd_sizes.md has the figures.
"""

import contextlib
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .measured_memory import LARGER

ROOT = Path(__file__).resolve().parents[3]
WORKERS = (3, 5, 7)
ATTEMPTS = 5
MOST = 1.12  # relative to a k-th of a single worker's memory


@functools.cache
def measured_mib(name, workers):
    """The MiB that the first worker holds.

    MXNet's profiler of memory crashed or hung in 2 of 16 runs; all others gave the same figure.
    """
    module = "tests.python.equality.measured_memory"
    # Contexts of pinned memory share threads with other contexts, on which fetches wait.
    threads = {"MXNET_CPU_WORKER_NTHREADS": "4", "OMP_NUM_THREADS": "1"}
    for _ in range(ATTEMPTS):
        with contextlib.suppress(subprocess.TimeoutExpired):
            ran = subprocess.run(
                [sys.executable, "-m", module, name, str(workers), "0"],
                cwd=ROOT,
                env={**os.environ, **threads},
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            if ran.returncode >= 0:  # not ended by a signal
                assert ran.returncode == 0, ran.stderr
                return float(ran.stdout)
    raise AssertionError(f"{ATTEMPTS} runs crashed or hung")


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
