"""Measures the cost of odd sizes: a training step of two workers, compared with plain MXNet's.

    python benchmarks/odd_sizes.py                # 12 rounds, a quarter of an hour
    python benchmarks/odd_sizes.py --rounds 3

Two convolutions of 3 x 3 with BatchNorm on images of 14 x 14. Processes with a batch of 15 and 255
channels, and with 16 and 256, each in plain MXNet and over two workers, take turns. Prints a table
like that of waiting.py: the time per sample on odd sizes, compared with even ones, and the time
that tofu adds to oneDNN's own loss. Processor time counts, as it hardly changes with other load; a
worker has one thread. TOFU_* variables have their effect: TOFU_SEARCH=data-parallel cuts batches.
`--smoke` takes few channels, to check that the script works.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from _goals import Goal, table  # noqa: E402

SIZES = {"odd": (15, 255), "even": (16, 256)}
SMOKE = {"odd": (7, 9), "even": (8, 10)}
PIXELS = 14
STEPS = 2  # of a turn
WARM_UP = 2
GOAL = 1.10


def serve(batch: int, channels: int) -> None:
    """Take steps for each line of standard input, and print their processor times."""
    import mxnet as mx
    from mxnet import autograd, gluon
    from mxnet.gluon import nn

    mx.random.seed(1)
    net = nn.HybridSequential()
    for _ in range(2):
        net.add(nn.Conv2D(channels, 3, padding=1, in_channels=channels, use_bias=False))
        net.add(nn.BatchNorm(in_channels=channels), nn.Activation("relu"))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    data = mx.nd.random.normal(shape=(batch, channels, PIXELS, PIXELS))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})

    def step() -> None:
        with autograd.record():
            loss = net(data).square().mean()
        loss.backward()
        trainer.step(1)
        mx.nd.waitall()

    for _ in range(WARM_UP):
        step()
    for _ in sys.stdin:
        begin = time.process_time()
        for _ in range(STEPS):
            step()
        print(json.dumps((time.process_time() - begin) / STEPS / batch), flush=True)


def start(batch: int, channels: int, *, workers: int) -> subprocess.Popen[str]:
    """A process that takes steps when it gets a line."""
    variables = {"OMP_NUM_THREADS": "1", "TOFU_LOG": "quiet", "TOFU_DEVICE": "cpu"}
    if workers:
        variables |= {"MXNET_GRAPH_PASS": "tofu", "TOFU_WORKERS": str(workers)}
    line = [sys.executable, __file__, "--serve", str(batch), str(channels)]
    pipe = subprocess.PIPE
    environ = {**os.environ, **variables}
    return subprocess.Popen(line, env=environ, stdin=pipe, stdout=pipe, text=True)


def turn(process: subprocess.Popen[str]) -> float:
    """Processor seconds per sample of the next steps of a process."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline()))


def measure(sizes: dict[str, tuple[int, int]], rounds: int) -> dict[tuple[str, int], list[float]]:
    """Processor seconds per sample, by size and number of workers (0: plain), round by round."""
    processes = {
        (name, workers): start(*sizes[name], workers=workers)
        for workers in (0, 2)
        for name in sizes
    }
    try:
        seconds: dict[tuple[str, int], list[float]] = {key: [] for key in processes}
        for _ in range(rounds):
            for key, process in processes.items():
                seconds[key].append(turn(process))
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    return seconds


def quartiles(ratios: list[float]) -> str:
    """The median, and in brackets the quartiles, where there are values enough."""
    middle = f"{statistics.median(ratios):.2f}"
    if len(ratios) < 4:
        return middle
    low, _, high = statistics.quantiles(ratios, n=4)
    return f"{middle} ({low:.2f} to {high:.2f})"


def rows(
    sizes: dict[str, tuple[int, int]], seconds: dict[tuple[str, int], list[float]]
) -> list[Goal]:
    """The costs of odd sizes, each with its goal."""
    plain, tofu = (
        [odd / even for odd, even in zip(seconds["odd", workers], seconds["even", workers])]
        for workers in (0, 2)
    )
    added = [tofu_ratio / plain_ratio for tofu_ratio, plain_ratio in zip(tofu, plain)]
    goal = f"{GOAL:.2f}"
    odd, even = ("batch {}, {} channels".format(*sizes[name]) for name in ("odd", "even"))
    work = f"per sample, {odd}, compared with {even}"
    ratios_of = {f"plain MXNet {work}": plain, f"two workers {work}": tofu, "what tofu adds": added}
    return [
        Goal(name, quartiles(ratios), goal, statistics.median(ratios) <= GOAL)
        for name, ratios in ratios_of.items()
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12, help="turns of each process")
    parser.add_argument("--smoke", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--serve", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(*args.serve)
        return
    sizes = SMOKE if args.smoke else SIZES
    print(table(rows(sizes, measure(sizes, args.rounds))))


if __name__ == "__main__":
    main()
