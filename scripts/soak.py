"""Trains for long, and against odds: memory, time and equality after thousands of steps.

    python scripts/soak.py steps 10000          # bytes in use as steps go by
    python scripts/soak.py batches 200          # the same, with that many batch sizes, twice
    python scripts/soak.py contexts 16 64 128   # a few steps over that many contexts
    python scripts/soak.py switched 12          # tofu turned on and off every other step
    python scripts/soak.py kvstores 10          # steps with every kvstore of one process
    python scripts/soak.py threads 4            # that many threads, each trains a net
    python scripts/soak.py full FOLDER          # checkpoints on a small file system that fills up
    python scripts/soak.py torn FOLDER          # checkpoints that end early, or are another net's

Each part prints a line for each of its figures, and ends with status 1 where a figure is wrong. Set
MXNET_ENGINE_TYPE or MXNET_EXEC_BULK_EXEC_* to try the parts under other engines.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import tofu

FEATURES, WORKERS, SAMPLES = 64, 4, 5
FLAT = 2**20  # growth between two samples that still counts as flat, in bytes
LOOKS = 4
EQUAL = 1e-10  # in float64
TORN = 20  # places at which a checkpoint may end
FILLED = 2**26  # the most to write to a file system that should be small


class _Use(ctypes.Structure):
    """The result of glibc's mallinfo2."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (*"abcd", "mapped", *"ef", "used", *"gh"))


def bytes_in_use() -> int:
    """Bytes that malloc has handed out: the least of some samples, as threads free some later."""
    look = ctypes.CDLL(None).mallinfo2
    look.restype = _Use
    samples = []
    for _ in range(LOOKS):
        gc.collect()
        mx.nd.waitall()
        use = look()
        samples.append(int(use.used + use.mapped))
        time.sleep(0.05)
    return min(samples)


def _is_flat(used: list[int]) -> bool:
    """Whether memory did not grow twice between the last three samples, as it does with a leak.

    MXNet allocates some 9 MB once, when an engine thread is first used, which can be at any step.
    """
    last = used[-3:]
    return min((after - before for before, after in zip(last, last[1:])), default=0) < FLAT


class Training:
    """A small net with a Trainer. No gradient is zero: Adam would turn zeros into noise."""

    def __init__(self, units: int = 128, **options: Any) -> None:
        mx.random.seed(1)
        self.net = gluon.nn.HybridSequential(prefix="net_")
        with self.net.name_scope():
            self.net.add(gluon.nn.Dense(units, in_units=FEATURES, activation="tanh"))
            self.net.add(gluon.nn.BatchNorm(in_channels=units))
            self.net.add(gluon.nn.Dense(16, in_units=units))
        self.net.initialize(mx.init.Xavier())
        self.net.cast("float64")
        self.net.hybridize()
        self.trainer = gluon.Trainer(self.net.collect_params(), "adam", **options)

    def step(self, rows: int) -> float:
        """Train on a batch of that many examples; return the loss."""
        drawn = np.random.RandomState(rows).normal(size=(2, rows, FEATURES))
        data, target = (mx.nd.array(each, dtype="float64") for each in drawn)
        with autograd.record():
            loss = ((self.net(data) - target[:, :16]) ** 2).mean()
        loss.backward()
        self.trainer.step(1)
        return float(loss.asscalar())


def steps(counts: list[int]) -> bool:
    """Whether memory is flat over that many steps."""
    (count,) = counts
    training, used = Training(), []
    for number in range(1, count + 1):
        training.step(32)
        if number % max(1, count // SAMPLES) == 0:
            used.append(bytes_in_use())
            print(f"step {number:,}: {used[-1]:,} bytes in use")
    return _is_flat(used)


def batches(counts: list[int]) -> bool:
    """Whether memory after all batch sizes is the same a second time."""
    (count,) = counts
    training, used = Training(), []
    for turn in range(3):
        for rows in range(WORKERS, WORKERS + count):
            training.step(rows)
        used.append(bytes_in_use())
        print(f"turn {turn + 1} of {count} batch sizes: {used[-1]:,} bytes in use")
    return _is_flat(used)


def contexts(counts: list[int]) -> bool:
    """Whether runs over so many contexts equal the serial run."""
    are_equal = True
    for count in counts:
        tofu.disable()
        training = Training()
        expected = [training.step(2 * count) for _ in range(3)]
        tofu.enable(workers=count, device="cpu", log="quiet")
        before, begin, training = bytes_in_use(), time.process_time(), Training()
        losses = [training.step(2 * count) for _ in range(3)]
        seconds = time.process_time() - begin
        size = bytes_in_use() - before
        print(f"{count} contexts: {seconds:.1f} s of processor time, {size:,} bytes", end=", ")
        are_equal &= _are_equal(losses, expected)
    return are_equal


def switched(counts: list[int]) -> bool:
    """Whether a run that turns tofu off and on equals the serial run."""
    (count,) = counts
    tofu.disable()
    training = Training()
    expected = [training.step(30) for _ in range(count)]
    training, losses = Training(), []
    for number in range(count):
        if number % 4 == 0:
            tofu.enable(workers=3, device="cpu", log="quiet")
        if number % 4 == 2:
            tofu.disable()
        losses.append(training.step(30))
    return _are_equal(losses, expected)


def kvstores(counts: list[int]) -> bool:
    """Whether runs with every kvstore of one process equal the serial run."""
    (count,) = counts
    tofu.disable()
    training = Training()
    expected = [training.step(30) for _ in range(count)]
    tofu.enable(workers=WORKERS, device="cpu", log="quiet")
    are_equal = True
    for kvstore in (None, "local", "device", mx.kv.create("local"), mx.kv.create("device")):
        for on_kvstore in (None, False, True) if kvstore else (None,):
            training = Training(kvstore=kvstore, update_on_kvstore=on_kvstore)
            name = getattr(kvstore, "type", kvstore)
            print(f"kvstore {name}, update_on_kvstore {on_kvstore}", end=": ")
            are_equal &= _are_equal([training.step(30) for _ in range(count)], expected)
    return are_equal


def threads(counts: list[int]) -> bool:
    """Whether nets that threads train at the same time equal one that is trained alone."""
    (count,) = counts
    trainings, losses = [Training() for _ in range(count)], [list[float]() for _ in range(count)]

    def train(number: int) -> None:
        losses[number] += [trainings[number].step(30) for _ in range(20)]

    running = [threading.Thread(target=train, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    tofu.disable()
    alone = Training()
    expected = [alone.step(30) for _ in range(20)]
    if any(len(each) != len(expected) for each in losses):
        return False  # an error of a thread, which Python has printed
    return _are_equal([loss for each in losses for loss in each], expected * count)


def torn(folder: Path) -> bool:
    """Whether checkpoints that end early, or are another net's, are errors that change nothing."""
    tofu.disable()
    training = Training()
    expected = [training.step(8) for _ in range(TORN + 3)]
    tofu.enable(workers=WORKERS, device="cpu", log="quiet")
    training, wide = Training(), Training(units=64)
    losses, refused = [training.step(8)], 0
    paths = {name: folder / name for name in ("parameters", "states")}
    training.net.save_parameters(str(paths["parameters"]))
    training.trainer.save_states(str(paths["states"]))
    whole = {name: path.read_bytes() for name, path in paths.items()}
    for number in range(TORN):
        for name, path in paths.items():
            path.write_bytes(whole[name][: len(whole[name]) * number // TORN])
        refused += _is_refused(training.net.load_parameters, paths["parameters"])
        refused += _is_refused(training.trainer.load_states, paths["states"])
        losses.append(training.step(8))
    wide.net.save_parameters(str(paths["parameters"]))
    refused += _is_refused(training.net.load_parameters, paths["parameters"])
    losses += [training.step(8), training.step(8)]
    print(f"{refused} of {2 * TORN + 1} checkpoints are refused", end="; ")
    return _are_equal(losses, expected) and refused == 2 * TORN + 1


def _is_refused(load: Callable[[str], Any], path: Path) -> bool:
    try:
        load(str(path))
    except Exception:  # whatever MXNet, Gluon or pickle say
        return True
    return False


def full(folder: Path) -> bool:
    """Whether checkpoints survive a full disk, and training goes on."""
    training, is_right = Training(), True
    saves: dict[str, Callable[[str], Any]] = {
        "parameters": training.net.save_parameters,
        "states": training.trainer.save_states,
    }
    training.step(8)
    for name, save in saves.items():
        save(str(folder / name))
    old = {name: (folder / name).read_bytes() for name in saves}
    _fill(folder / "filler")
    training.step(8)
    for name, save in saves.items():
        try:
            save(str(folder / name))
            is_right = False
            print(f"{name}: saved on a full disk")
        except (mx.MXNetError, OSError) as error:
            is_whole = (folder / name).read_bytes() == old[name]
            is_right &= is_whole
            print(f"{name}: {type(error).__name__}; the old file is whole: {is_whole}")
    (folder / "filler").unlink()
    training.step(8)
    for name, save in saves.items():
        save(str(folder / name))
    names = sorted(path.name for path in folder.iterdir())
    print(f"saved when there is room again; the folder has {', '.join(names)}")
    return is_right and names == sorted(saves)


def _fill(path: Path) -> None:
    block = bytes(4096)
    with open(path, "wb", buffering=0) as file:
        for _ in range(FILLED // len(block)):
            try:
                file.write(block)
            except OSError:
                return
    raise SystemExit(f"{path.parent} has room for {FILLED:,} bytes; expected a small file system")


def _are_equal(losses: list[float], expected: list[float]) -> bool:
    largest = max(abs(a - b) / abs(b) for a, b in zip(losses, expected))
    print(f"losses differ by at most {largest:.1e} of the serial run's")
    return largest < EQUAL


PARTS = {
    "steps": steps, "batches": batches, "contexts": contexts, "switched": switched,
    "kvstores": kvstores, "threads": threads,
}  # fmt: skip
OF_FILES = {"full": full, "torn": torn}


def main() -> None:
    """Run one part; the exit status is 1 where a figure is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=[*PARTS, *OF_FILES])
    parser.add_argument("arguments", nargs="+", metavar="COUNT|FOLDER")
    args = parser.parse_args()
    tofu.enable(workers=WORKERS, device="cpu", log="quiet")
    if args.part in OF_FILES:
        is_right = OF_FILES[args.part](Path(args.arguments[0]))
    else:
        is_right = PARTS[args.part]([int(each) for each in args.arguments])
    print("as it should be" if is_right else "WRONG")
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
