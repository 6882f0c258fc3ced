"""Training survives interrupts, failed allocations, and forked processes that load data."""

import os
from pathlib import Path

import pytest

from ..support import forked

SCRIPT = Path(__file__).parent / "survive.py"
LIMIT_S = 600  # its own watchdog comes first


def survive(trouble, *arguments):
    done = forked.run(
        [SCRIPT, trouble, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.endswith("survived\n")


@pytest.mark.parametrize("workers", [2, 4])
def test_interrupts(workers):
    survive("interrupts", "--workers", workers, "--times", 6)


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize(
    ("workers", "dtype", "fetch"),
    [(2, "float64", "multifetch"), (3, "float32", "plain"), (4, "float32", "multifetch")],
)
def test_a_hundred_interrupts(workers, dtype, fetch):
    options = ("--dtype", dtype, "--fetch", fetch, "--seed", workers)
    survive("interrupts", "--workers", workers, "--times", 100, *options)


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_too_little_memory(workers, dtype):
    survive("memory", "--workers", workers, "--dtype", dtype, "--times", 2)


@pytest.mark.parametrize("workers", [2, 4])
def test_processes_that_load_data(workers):
    survive("forks", "--workers", workers, "--times", 2)
