"""Measures the speed that a CPU gains where tiles end on multiples of 8 elements.

    OMP_NUM_THREADS=1 python benchmarks/tile_multiples.py --seconds 150

Forward and backward of a convolution and of a dense layer, with as many channels or units as a tile
of one worker has. Times are the least of processor time, on one thread.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["MXNET_ENGINE_TYPE"] = "NaiveEngine"  # operators run on this thread

from mxnet import autograd, nd

# (inputs, outputs) of layers: of tiles that are equal pieces, and of tiles on multiples of 8.
CONVOLUTIONS = (
    (256, 127), (256, 128), (256, 255), (256, 256), (256, 500), (256, 504), (256, 496),
    (500, 256), (504, 256),
)  # fmt: skip
DENSE = (
    (1024, 341), (1024, 344), (1024, 500), (1024, 504), (1000, 1024), (1008, 1024),
    (6283, 256), (6288, 256),
)  # fmt: skip


def convolution(inputs: int, outputs: int) -> Callable[[], None]:
    """A training step of a 3x3 convolution of four images of 14x14 pixels."""
    data = nd.random.normal(shape=(4, inputs, 14, 14))
    weight = nd.random.normal(shape=(outputs, inputs, 3, 3))
    options = {"kernel": (3, 3), "pad": (1, 1), "num_filter": outputs, "no_bias": True}
    return _step(lambda: nd.Convolution(data, weight, **options), data, weight)


def dense(inputs: int, outputs: int) -> Callable[[], None]:
    """A training step of a dense layer on a batch of 128."""
    data = nd.random.normal(shape=(128, inputs))
    weight = nd.random.normal(shape=(outputs, inputs))
    options = {"num_hidden": outputs, "no_bias": True}
    return _step(lambda: nd.FullyConnected(data, weight, **options), data, weight)


def _step(forward: Callable[[], nd.NDArray], *variables: nd.NDArray) -> Callable[[], None]:
    for variable in variables:
        variable.attach_grad()

    def run() -> None:
        with autograd.record():
            output = forward()
        output.backward()
        nd.waitall()

    return run


def measure(steps: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """The least processor time of each step; steps take turns for `seconds`, each at least once."""
    least: dict[str, float] = {}
    end = time.monotonic() + seconds
    while not least or time.monotonic() < end:
        for name, step in steps.items():
            begin = time.process_time()
            step()
            spent = time.process_time() - begin
            least[name] = min(least.get(name, spent), spent)
    return least


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=150, help="how long to measure")
    parser.add_argument(
        "--smoke", action="store_true", help="each layer once, to see that it works"
    )
    args = parser.parse_args()
    seconds = 0 if args.smoke else args.seconds
    steps = {f"convolution {a} -> {b}": convolution(a, b) for a, b in CONVOLUTIONS}
    steps |= {f"dense {a} -> {b}": dense(a, b) for a, b in DENSE}
    for name, least in measure(steps, seconds).items():
        print(f"{name:24}{1e3 * least:9.2f} ms")


if __name__ == "__main__":
    main()
