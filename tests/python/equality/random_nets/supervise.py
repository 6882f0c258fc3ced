"""Runs seeds in a process of their own, which may crash or hang."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

TESTS = Path(__file__).resolve().parents[2]
SECONDS = 180  # allowed for one seed


def supervise(
    seeds: Sequence[int], seconds: float = SECONDS, python: str = sys.executable
) -> list[dict[str, Any]]:
    """Return a record for each seed.

    A process that dies is replaced, and the seed that it died of is recorded as "crashes"; one
    that is silent for longer than `seconds` is killed, and its seed recorded as "hangs"; "plain
    crashes" and "plain hangs" where it was MXNet's own run.

    Args:
        seeds: of the nets.
        seconds: of silence, after which a process hangs.
        python: the program that runs them.
    """
    left, records = list(seeds), []
    while left:
        for record in _one_process(left, seconds, python):
            records.append(record)
            left.remove(record["seed"])
    return records


def command(python: str, *arguments: str) -> list[str]:
    """The command that starts this package in the folder TESTS."""
    return [python, "-m", "equality.random_nets", *arguments]


def environment() -> dict[str, str]:
    """The variables of the processes."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _one_process(seeds: Sequence[int], seconds: float, python: str) -> list[dict[str, Any]]:
    process = subprocess.Popen(
        command(python, ",".join(map(str, seeds))),
        cwd=TESTS,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    lines: queue.Queue[Optional[str]] = queue.Queue()
    errors: list[str] = []
    readers = [
        threading.Thread(target=_read, args=(process.stdout, lines.put), daemon=True),
        threading.Thread(target=_read, args=(process.stderr, errors.append), daemon=True),
    ]
    for reader in readers:
        reader.start()
    records, current, phase = [], None, ""
    try:
        while True:
            line = lines.get(timeout=seconds)
            if line is None:
                break
            record = json.loads(line)
            if record["status"] == "begins":
                current, phase = record["seed"], "plain "
            elif record["status"] == "ran serially":
                phase = ""
            else:
                records.append(record)
                current = None
        status = "crashes"
    except queue.Empty:
        status = "hangs"
    if status == "hangs":
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    for reader in readers:
        reader.join()
    for stream in (process.stdout, process.stderr):
        stream.close()
    if current is not None or not records:
        current = seeds[0] if current is None else current
        tail = "".join(text for text in errors if text)[-2000:]
        records.append(
            {"seed": current, "status": phase + status, "reason": f"exit {code}: {tail}"}
        )
    return records


def _read(stream: Any, put: Any) -> None:
    for line in stream:
        put(line)
    put(None)
