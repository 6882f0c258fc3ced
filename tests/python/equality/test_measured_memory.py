"""By measurement, the fullest worker holds little more than a k-th of a single worker's memory.

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
MOST = 1.12  # relative to a k-th of a single worker's memory


@functools.cache
def measured_mib(name, workers):
    """The MiB that the first worker holds.

    One thread runs all, as MXNet's profiler of memory may crash or hang where several allocate.
    """
    ran = subprocess.run(
        [sys.executable, "-m", "tests.python.equality.measured_memory", name, str(workers), "0"],
        cwd=ROOT,
        env={**os.environ, "MXNET_ENGINE_TYPE": "NaiveEngine", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return float(ran.stdout)


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", LARGER)
def test_the_first_worker_holds_its_part(name, workers):
    share = measured_mib(name, 1) / workers
    assert 0.9 * share < measured_mib(name, workers) < MOST * share
