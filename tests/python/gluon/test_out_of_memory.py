"""If one worker, or all, get no memory, one error says where, and the next steps are correct."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
LIMIT_S = 600  # its own watchdog comes first


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The library that makes allocations fail, to be loaded before MXNet."""
    path = tmp_path_factory.mktemp("memory") / "libscarce_memory.so"
    source = str(FOLDER / "scarce_memory.cc")
    compiler = os.environ.get("CXX", "c++").split()
    subprocess.run(
        [*compiler, "-std=c++17", "-O1", "-shared", "-fPIC", source, "-o", str(path), "-ldl"],
        check=True,
    )
    return path


def run(library, *arguments):
    done = subprocess.run(
        [sys.executable, str(FOLDER / "out_of_memory.py"), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    *records, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last == "survived"
    return records


# When a state is made, no weight has been updated yet on any worker.
OF_ONE = {
    "forward": r"tofu: thrown by operator \S+ \(\S+\) on worker {0}, cpu\({0}\)",
    "backward": r"tofu: thrown by operator \S+ \(\S+\) on worker {0}, cpu\({0}\)",
    "states": r"parameter net_a: making its optimizer state on cpu\({0}\) failed",
}


@pytest.mark.whole(but=1)
@pytest.mark.parametrize(("workers", "dtype"), [(2, "float64"), (4, "float32")])
def test_of_one_worker(library, workers, dtype):
    records = run(library, *OF_ONE, "--workers", workers, "--dtype", dtype)
    assert len(records) == workers * len(OF_ONE)
    for record in records:
        assert record["failures"], record
        assert record["right"], record
        (error,) = record["errors"]
        assert re.search(OF_ONE[record["place"]].format(record["worker"]), error), record
        assert "Failed to allocate CPU Memory" in error


WHOLE = {
    "parameters": "parameter net_a: dividing it over the workers failed",
    "fetch": "output 0 of net: gathering it on cpu(0) failed",
}


@pytest.mark.whole(but=1)
@pytest.mark.parametrize(("workers", "dtype"), [(2, "float32"), (3, "float64")])
def test_of_tiles_and_of_a_whole_output(library, workers, dtype):
    """MXNet allocates these arrays on the script's own thread."""
    for record in run(library, *WHOLE, "--every", 2, "--workers", workers, "--dtype", dtype):
        assert record["right"], record
        (error,) = record["errors"]
        assert WHOLE[record["place"]] in error
        assert "Failed to allocate CPU Memory" in error


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("workers", [2, 4])
def test_of_all_workers_at_once_where_memory_is_scarce(library, workers):
    for record in run(library, "forward", "--scarce", "--every", 3, "--workers", workers):
        assert record["right"], record
        (error,) = record["errors"]
        assert "tofu: thrown by operator" in error


@pytest.mark.whole(but=1)
@pytest.mark.parametrize("workers", [2, 4])
def test_backward_allocates_nothing_where_memory_is_scarce(library, workers):
    """Forward allocates for it: errors of its operators, which run on all workers, would race."""
    for record in run(library, "backward", "--scarce", "--workers", workers):
        assert (record["failures"], record["errors"]) == (0, []), record
