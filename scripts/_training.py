"""Trains a model of tofu.models and measures it; shared by wresnet.py and rnn.py.

``train`` is an ordinary Gluon training loop with no tofu code. ``MXNET_GRAPH_PASS=tofu`` or
``enable`` switches tofu on, and an observer records what it planned.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Optional, Union

from tofu import errors
from tofu.config import graph_pass
from tofu.models import Model, build, create_block, find

FETCHES = ("plain", "multifetch")
# The names in _simulated_systems.py, which imports mxnet.
SYSTEMS = ("tofu", "time", "ideal", "smallbatch", "swap", "placement", "dataparallel")
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.01, "momentum": 0.9},
    "adam": {"learning_rate": 0.001},
}


@dataclasses.dataclass
class Measured:
    """The results of a training run.

    Attributes:
        losses: the mean loss of every step.
        step_seconds: the time of every step after the warm-up.
    """

    losses: list[float]
    step_seconds: list[float]


@dataclasses.dataclass
class Planned:
    """The partitioned training graphs of a run; empty when it was serial."""

    compiled: list[Any] = dataclasses.field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Workers, traffic, memory and search time of the first graph, the training graph."""
        if not self.compiled:
            return {
                "workers": 1,
                "bytes_per_step": 0,
                "peak_bytes_per_worker": None,
                "tensor_bytes_per_worker": None,
                "serial_bytes": None,
                "search_seconds": 0.0,
                "fetch": None,
            }
        plan_summary = self.compiled[0].summary()
        return {
            "workers": plan_summary["workers"],
            "bytes_per_step": plan_summary["bytes_per_step"],
            "peak_bytes_per_worker": self._peak_bytes(),
            "tensor_bytes_per_worker": plan_summary["bytes_per_worker"],
            "serial_bytes": plan_summary["serial_bytes"],
            "search_seconds": plan_summary["search_seconds"],
            "fetch": self.compiled[0].fetch,
        }

    def _peak_bytes(self) -> list[int]:
        """Bytes that MXNet allocates, according to the model of its planner."""
        import mxnet as mx

        from tofu.mx.memory.step_memory import step_memory

        compiled = self.compiled[0]
        kind = mx.gpu if mx.context.num_gpus() else mx.cpu
        contexts = [kind(worker) for worker in range(compiled.step.workers)]
        return list(step_memory(compiled.step, contexts).bytes_per_worker)


class Parser(argparse.ArgumentParser):
    """A parser with one-line errors."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that do not depend on the model."""
    add = parser.add_argument
    add("--model", metavar="NAME", help="a model by name instead of sizes")
    add("--reduced", action="store_true", help="with --model: the small version for tests")
    add(
        "--batch-size",
        type=_batch_size,
        metavar="N",
        help="examples per step; auto: the most that fit, with --system; default: the model's own",
    )
    add("--train-steps", type=int, default=20, metavar="N", help="number of measured steps (20)")
    add("--warm-up", type=int, default=2, metavar="N", help="number of steps before them (2)")
    add("--optimizer", choices=tuple(OPTIMIZERS), default="sgd", help="optimizer; sgd has momentum")
    add("--seed", type=int, default=7, help="seed of the synthetic data and the weights")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--workers", type=int, metavar="K", help="partition over K workers")
    how.add_argument("--serial", action="store_true", help="stock MXNet, even if tofu is on")
    add("--fetch", choices=FETCHES, help="how workers fetch; default: TOFU_FETCH")
    how.add_argument("--system", metavar="NAME", help="simulate one of " + ", ".join(SYSTEMS))
    add(
        "--devices",
        type=int,
        metavar="K",
        help="with --system placement: train on K devices of this machine instead",
    )
    add("--machine", metavar="FILE|NAME", help="with --system: the machine (p2.8xlarge)")


def _batch_size(text: str) -> Optional[Union[int, str]]:
    return text if text == "auto" else int(text)


def run(
    parser: argparse.ArgumentParser,
    family: str,
    make_model: Callable[[argparse.Namespace], Model],
    sizes: tuple[str, ...],
) -> None:
    """Train as the command line says; print the results, with JSON in the last line.

    Args:
        parser: the script's parser, with all options.
        family: the prefix of its models' names.
        make_model: makes the model of the given sizes.
        sizes: names of the options that `make_model` uses, None if not given.
    """
    args = parser.parse_args()
    try:
        model = _model(args, family, make_model, sizes)
        if args.system and args.devices is None:
            _simulate(model, args)
            return
        if args.devices is not None:
            # Between CPU contexts, stock MXNet's copies misread tensors in oneDNN's layouts.
            os.environ.update(MXNET_MKLDNN_ENABLED="0", MXNET_SUBGRAPH_BACKEND="NONE")
        with _switched(args), _observed() as planned:
            measured = train(model, args)
    except (errors.ConfigError, ValueError) as error:
        parser.error(str(error))
    record = result(model, args, measured, planned)
    if args.devices is not None:
        record.update(system=args.system, devices=args.devices, simulated=False)
    for line in describe(record):
        print(line)
    print(json.dumps(record), flush=True)


def _simulate(model: Model, args: argparse.Namespace) -> None:
    """Print a simulated step of a system, with JSON in the last line."""
    from _simulated_systems import simulate_system

    size = model.batch_size if args.batch_size is None else args.batch_size
    machine = args.machine or "p2.8xlarge"
    outcome = simulate_system(
        args.system,
        model,
        machine,
        batch_size=None if size == "auto" else size,
        reduced=args.reduced,
        fetch=args.fetch or "multifetch",
    )
    record = {**dataclasses.asdict(outcome), "machine": machine}
    print(
        f"simulated: {model.name}, {args.system}, batch {outcome.batch_size}, {record['machine']}"
    )
    print(
        f"  {outcome.samples_per_second:,.2f} samples per second on {outcome.devices} devices"
        if outcome.fits
        else f"  out of memory: a device would hold {outcome.memory_bytes:,} bytes"
    )
    print(
        f"  a step takes {outcome.step_seconds:.4f} s: computing {outcome.compute_seconds:.4f} s, "
        f"fetching {outcome.fetch_seconds:.4f} s, waiting {outcome.waiting_seconds:.4f} s"
    )
    print(json.dumps(record), flush=True)


def prepare(model: Model, args: argparse.Namespace) -> Callable[[], float]:
    """A training step on one synthetic batch, in plain Gluon; waits, and returns the loss."""
    import mxnet as mx
    from mxnet import autograd, gluon

    if getattr(args, "devices", None):
        return _prepare_placed(model, args)
    ctx = mx.gpu() if mx.context.num_gpus() else mx.cpu()
    mx.random.seed(args.seed)
    net = _with_loss(create_block(model, reduced=args.reduced))
    net.initialize(mx.init.Xavier(), ctx=ctx)
    net.hybridize()
    batch_size = args.batch_size or model.batch_size
    arrays = synthetic_batch(model, batch_size, reduced=args.reduced, seed=args.seed)
    batch = [mx.nd.array(array, ctx=ctx) for array in arrays]
    trainer = gluon.Trainer(net.collect_params(), args.optimizer, OPTIMIZERS[args.optimizer])

    def step() -> float:
        with autograd.record():
            loss = net(*batch)
        loss.backward()
        trainer.step(batch_size)
        mean = float(loss.mean().asscalar())
        mx.nd.waitall()
        return mean

    return step


def _prepare_placed(model: Model, args: argparse.Namespace) -> Callable[[], float]:
    """A training step like that of `prepare`, with layers on several devices (_placement.py)."""
    import _placement
    import mxnet as mx

    mx.random.seed(args.seed)
    net = _with_loss(create_block(model, reduced=args.reduced))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    size = model.reduced if args.reduced else model.full
    batch_size = args.batch_size or model.batch_size
    arrays = synthetic_batch(model, batch_size, reduced=args.reduced, seed=args.seed)
    batch = dict(zip(size.inputs, map(mx.nd.array, arrays)))
    options = {**OPTIMIZERS[args.optimizer], "rescale_grad": 1 / batch_size}
    return _placement.prepare(
        net, batch, args.devices, mx.optimizer.create(args.optimizer, **options)
    )


def train(model: Model, args: argparse.Namespace) -> Measured:
    """Train, and time the steps after the warm-up."""
    step, losses, seconds = prepare(model, args), [], []
    for number in progress(args.warm_up + args.train_steps, f"training {model.name}"):
        start = time.perf_counter()
        losses.append(step())
        if number >= args.warm_up:
            seconds.append(time.perf_counter() - start)
    return Measured(losses, seconds)


def synthetic_batch(model: Model, batch_size: int, *, reduced: bool, seed: int) -> list[Any]:
    """Normal data, and uniform tokens and labels, which depend only on the seed."""
    import numpy as np

    size = model.reduced if reduced else model.full
    random = np.random.RandomState(seed)
    values = size.options.get("classes", size.options.get("vocabulary"))
    arrays = []
    for name, shape in size.inputs.items():
        shape = (batch_size, *shape)
        if name == "data":
            array = random.standard_normal(shape)
        elif name == "mask":  # of all tokens
            array = np.ones(shape)
        else:
            array = random.randint(values, size=shape)
        arrays.append(array.astype("float32"))
    return arrays


def result(
    model: Model, args: argparse.Namespace, measured: Measured, planned: Planned
) -> dict[str, Any]:
    """The record that is printed as JSON (docs/models.md)."""
    import mxnet as mx

    batch_size = args.batch_size or model.batch_size
    rates = [batch_size / seconds for seconds in measured.step_seconds]
    low, _, high = statistics.quantiles(rates) if len(rates) > 1 else (rates[0],) * 3
    size = model.reduced if args.reduced else model.full
    return {
        "model": model.name,
        "reduced": args.reduced,
        "options": {**size.options, "inputs": size.inputs},
        "parameters": count_parameters(model, reduced=args.reduced),
        "batch_size": batch_size,
        "optimizer": args.optimizer,
        "data": f"synthetic, seed {args.seed}",
        "device": "gpu" if mx.context.num_gpus() else "cpu",
        **planned.summary(),
        "train_steps": args.train_steps,
        "warm_up": args.warm_up,
        "samples_per_second": {"median": statistics.median(rates), "quartiles": [low, high]},
        "first_loss": measured.losses[0],
        "last_loss": measured.losses[-1],
        "python": platform.python_version(),
        "mxnet": mx.__version__,
    }


def count_parameters(model: Model, *, reduced: bool) -> int:
    """The number of elements of all parameters, without running statistics."""
    shapes = [shape for shape, _ in build(model, 1, reduced=reduced).parameters.values()]
    return sum(map(math.prod, shapes))


def describe(record: dict[str, Any]) -> Iterator[str]:
    """The record for a reader."""
    workers, rates = record["workers"], record["samples_per_second"]
    how = "serial" if workers == 1 else f"{workers} workers"
    yield (
        f"{record['model']}{' (reduced)' * record['reduced']}: "
        f"{record['parameters'] / 1e6:,.1f} million parameters, batch {record['batch_size']}, {how}"
    )
    low, high = rates["quartiles"]
    yield (
        f"  {rates['median']:,.2f} samples per second, the median of {record['train_steps']} steps "
        f"(quartiles {low:,.2f} and {high:,.2f}); {record['data']}"
    )
    yield f"  loss {record['first_loss']:.6f} at first, {record['last_loss']:.6f} at last"
    if workers > 1:
        yield (
            f"  {record['bytes_per_step']:,} bytes communicated per step, "
            f"{max(record['peak_bytes_per_worker']):,} bytes on the fullest worker, "
            f"search {record['search_seconds']:.2f} s"
        )


def progress(total: int, text: str) -> Iterator[int]:
    """0 to `total` - 1, with a progress bar if standard error is a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(file=sys.stderr)
    shown = console.is_terminal
    yield from track(range(total), text, console=console, disable=not shown, transient=True)


def _with_loss(net: Any) -> Any:
    """`net` and its loss as one block, to make them one graph."""
    from mxnet import gluon

    class Training(gluon.HybridBlock):  # type: ignore[misc]
        """The loss of every example."""

        def __init__(self) -> None:
            super().__init__(prefix="training_")
            self.net = net
            self.loss = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")

        def hybrid_forward(self, F: Any, *batch: Any) -> Any:
            *data, label = batch
            return self.loss(self.net(*data), label)

    return Training()


def _model(
    args: argparse.Namespace,
    family: str,
    make_model: Callable[[argparse.Namespace], Model],
    sizes: tuple[str, ...],
) -> Model:
    workers = 1 if args.workers is None else args.workers
    if args.devices is not None:
        if args.system != "placement":
            raise ValueError("--devices: expected --system placement; a run takes --workers")
        if args.machine or args.batch_size == "auto":
            option = f"--machine {args.machine}" if args.machine else "--batch-size auto"
            raise ValueError(f"{option}: only for a simulation; leave out --devices")
    devices = 1 if args.devices is None else args.devices
    for name, value in (
        ("train-steps", args.train_steps), ("workers", workers), ("devices", devices),
    ):  # fmt: skip
        if value < 1:
            raise ValueError(f"--{name} {value}: expected at least 1")
    if args.batch_size == "auto":
        if args.system is None:
            raise ValueError("--batch-size auto: expected --system; a run has a size of its own")
    elif args.batch_size is not None and args.batch_size < 1:
        raise ValueError(f"--batch-size {args.batch_size}: expected at least 1")
    if args.warm_up < 0:
        raise ValueError(f"--warm-up {args.warm_up}: expected at least 0")
    if args.fetch and args.serial:
        raise ValueError(f"--fetch {args.fetch}: --serial fetches nothing; leave one out")
    if args.fetch and args.workers is None and args.system is None and graph_pass() is None:
        raise ValueError(f"--fetch {args.fetch}: expected --workers, or MXNET_GRAPH_PASS=tofu")
    if args.system is not None and args.system not in SYSTEMS:
        raise ValueError(f"--system {args.system}: expected one of {', '.join(SYSTEMS)}")
    if args.machine and args.system is None:
        raise ValueError(f"--machine {args.machine}: expected --system as well")
    if args.model is None:
        if args.reduced:
            raise ValueError("--reduced: expected --model NAME as well")
        return make_model(args)
    options = [f"--{name}" for name in sizes if getattr(args, name) is not None]
    if options:
        raise ValueError(f"--model {args.model}: has its own sizes; leave out {', '.join(options)}")
    model = find(args.model)
    if not model.name.startswith(f"{family}-"):
        raise ValueError(f"--model {model.name}: expected a name that starts with {family}-")
    return model


@contextlib.contextmanager
def _switched(args: argparse.Namespace) -> Iterator[None]:
    """Turn tofu on or off as the options say; without options, the environment decides."""
    import tofu

    before = os.environ.get("TOFU_FETCH")
    if args.fetch:
        os.environ["TOFU_FETCH"] = args.fetch
    try:
        if args.serial or args.devices:
            tofu.disable()
        elif args.workers or args.fetch:
            tofu.enable(workers=args.workers)
        yield
    finally:
        if args.workers or args.fetch:
            tofu.disable()
        if args.fetch:
            os.environ.pop("TOFU_FETCH")
            os.environ.update({} if before is None else {"TOFU_FETCH": before})


@contextlib.contextmanager
def _observed() -> Iterator[Planned]:
    from tofu.gluon.session.session import active, looking

    planned = Planned()
    is_on = active() is not None
    with looking(compiled=planned.compiled.append) if is_on else contextlib.nullcontext():
        yield planned
