"""Kills a rank of examples/torch_elastic.py at a random step, many times.

    python scripts/elastic.py --kills 20

Each time four agents of torchrun start, one rank each. One agent is killed with its rank; the three
that are left must go on, and every loss must be that of a run on one process. Takes about a minute
a kill on two cores. It needs torch, and gloo; nothing is simulated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))
import torch_elastic  # noqa: E402

RANKS, ALLOWED, PATIENCE_S = 4, 1e-6, 300

# Each group of ranks meets at a port of its own: at the agents' meeting place, torch tells groups
# apart by the restarts that each agent has counted, and waits without end if these differ.
SETTINGS = {
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
}  # fmt: skip


def expected(steps: int) -> list[float]:
    """The losses of one process, without tofu."""
    model = torch_elastic.made()
    optimizer = torch_elastic.made_optimizer(model)
    return [torch_elastic.train_step(model, optimizer, step) for step in range(steps)]


def noted(folder: Path) -> list[Mapping[str, Any]]:
    """The losses that a run has noted so far."""
    with contextlib.suppress(FileNotFoundError):
        lines = (folder / "losses").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]
    return []


@contextlib.contextmanager
def agents(folder: Path, steps: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Four agents, each with its output in a file, in process groups of their own."""
    # The meeting place outlives any agent, as a scheduler's would.
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", f"1:{RANKS}",
        "--nproc-per-node", "1", "--max-restarts", "9", "--monitor-interval", "0.1",
        "--local-addr", "localhost", "--rdzv-backend", "c10d", "--rdzv-id", "elastic",
        "--rdzv-endpoint", f"localhost:{store.port}",
        "--rdzv-conf", "is_host=0,last_call_timeout=10",
        torch_elastic.__file__, str(folder), "--steps", str(steps),
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        started = []
        for number in range(RANKS):
            output = stack.enter_context(open(folder / f"agent{number}", "wb"))
            started.append(
                subprocess.Popen(
                    command, stdout=output, stderr=output, cwd=ROOT, start_new_session=True,
                    env={**os.environ, **SETTINGS},
                )
            )  # fmt: skip
        try:
            yield started
        finally:
            for agent in started:
                kill(agent)


def kill(agent: subprocess.Popen[bytes]) -> None:
    """End an agent and its rank, which has a session of its own."""
    ranks = subprocess.run(["pgrep", "-P", str(agent.pid)], capture_output=True, text=True).stdout
    for process in [agent.pid, *map(int, ranks.split())]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    agent.wait()


def wait_for(what: str, agents: list[subprocess.Popen[bytes]], is_true: Any) -> None:
    """Wait until something is true. Raises SystemExit if agents fail or nothing happens."""
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        failed = [agent.poll() for agent in agents if agent.poll()]
        if failed or time.monotonic() > end:
            raise SystemExit(f"{what}: agents ended with {failed}, or {PATIENCE_S} s passed")
        time.sleep(0.05)


def run(folder: Path, steps: int, kill_at: int, victim: int) -> tuple[float, list[int], float]:
    """Train with a kill.

    Args:
        folder: an empty folder for the run's files.
        steps: the number of steps.
        kill_at: a rank dies once this step's loss is noted.
        victim: the number of the agent that dies.

    Returns the largest relative difference of a loss, the numbers of ranks in order, and the
    seconds from the kill to the first step of those that are left.
    """
    with agents(folder, steps) as started:
        wait_for("the start", started, lambda: len(noted(folder)) > kill_at)
        before, killed_at = noted(folder), time.monotonic()
        kill(started[victim])
        left = [agent for number, agent in enumerate(started) if number != victim]
        wait_for("going on", left, lambda: noted(folder)[-1]["ranks"] < before[0]["ranks"])
        seconds = time.monotonic() - killed_at
        wait_for("the end", left, lambda: all(agent.poll() == 0 for agent in left))
    losses = expected(steps)
    found = noted(folder)
    if {each["step"] for each in found} != set(range(steps)):
        raise SystemExit(f"{folder}: steps are missing: {found}")
    worst = max(abs(each["loss"] / losses[each["step"]] - 1) for each in found)
    return worst, list(dict.fromkeys(each["ranks"] for each in found)), seconds


def main() -> None:
    """Kill, and print a line for each time. Ends with status 1 if a loss differs."""
    parser = argparse.ArgumentParser(description="Kills ranks; see the top of this file.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"seed {options.seed}")
    wrong = 0
    for number in range(options.kills):
        at, victim = chance.randrange(1, options.steps - 2), chance.randrange(RANKS)
        with tempfile.TemporaryDirectory() as folder:
            worst, ranks, seconds = run(Path(folder), options.steps, at, victim)
        wrong += worst > ALLOWED or ranks != [RANKS, RANKS - 1]
        print(
            f"kill {number}: agent {victim} at step {at}; ranks {ranks}; went on after "
            f"{seconds:.1f} s; largest relative difference of a loss {worst:.1e}",
            flush=True,
        )
    print(f"{options.kills - wrong} of {options.kills} kills went on with equal losses")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
