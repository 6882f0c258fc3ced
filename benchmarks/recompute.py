"""Measures recomputation on one device: activations of a step, and its processor time.

    python benchmarks/recompute.py --output docs/results/recompute.json

Trains ResNet-50, layers as BERT's, and an unrolled LSTM on one CPU context with one thread: with
plain MXNet, with all activations kept, within a limit of half of the activations, and with as few
as possible. Processes alternate, so other load affects them equally. Reports activations as MXNet
allocates them, and the processor time of a step compared with that of all activations kept, in
pairs. Hardware: any CPU. Time: about ten minutes. Expected: see docs/results/recompute.md.
`--smoke` runs reduced models, to check that it works.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))

from _results import write_json  # noqa: E402

NETWORKS = ("resnet", "bert", "lstm")
RUNS = ("plain", "none", "half", "all")


def make_net(name: str, *, smoke: bool) -> tuple[Any, Any]:
    """A network, and a batch."""
    import mxnet as mx

    if name == "resnet":
        net = mx.gluon.model_zoo.vision.resnet50_v1(classes=10)
        size = 32 if smoke else 64
        return net, mx.nd.random.uniform(shape=(2 if smoke else 16, 3, size, size))
    if name == "lstm":
        from tofu.models.rnn import LstmStack

        steps, batch, hidden = (4, 8, 16) if smoke else (32, 128, 256)
        net = LstmStack(layers=2, hidden=hidden, steps=steps, classes=10)
        return net, mx.nd.random.uniform(shape=(batch, steps, hidden))
    layers, units, shape = (2, 16, (2, 8)) if smoke else (4, 256, (16, 128))
    return _bert(layers, units), mx.nd.random.uniform(shape=(*shape, units))


def _bert(layers: int, units: int) -> Any:
    from mxnet.gluon import nn

    from tofu.models.attention import Attention

    class Layer(nn.HybridBlock):  # type: ignore[misc]
        """Attention and a feed-forward network; a norm follows each, as in BERT."""

        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.attention = Attention(units, 4, dropout=0.1)
                self.first = nn.LayerNorm(in_channels=units)
                self.wide = nn.Dense(4 * units, flatten=False, in_units=units)
                self.narrow = nn.Dense(units, flatten=False, in_units=4 * units)
                self.drop = nn.Dropout(0.1)
                self.last = nn.LayerNorm(in_channels=units)

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            no_bias = F.zeros((1, 1, 1, 1))
            x = self.first(x + self.drop(self.attention(x, x, no_bias)))
            hidden = F.LeakyReLU(self.wide(x), act_type="gelu")
            return self.last(x + self.drop(self.narrow(hidden)))

    net = nn.HybridSequential()
    for _ in range(layers):
        net.add(Layer())
    net.add(nn.Dense(2))
    return net


def make_step(name: str, *, smoke: bool) -> Callable[[], Any]:
    """A function that trains one step, and waits for it."""
    import mxnet as mx

    mx.random.seed(3)
    net, batch = make_net(name, smoke=smoke)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    options = {"learning_rate": 1e-4, "momentum": 0.9}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", options)

    def step() -> None:
        with mx.autograd.record():
            loss = (net(batch) ** 2).mean()
        loss.backward()
        trainer.step(1)
        mx.nd.waitall()

    return step


def serve(name: str, run: str, limit: int, *, smoke: bool) -> None:
    """Report the first step's memory by kind; then answer each line with the time of a step."""
    import mxnet as mx

    import tofu

    kinds: dict[str, int] = {}
    if run == "plain":
        step = make_step(name, smoke=smoke)
        step()
    else:
        from tofu.gluon.session import session
        from tofu.mx.memory.step_memory import step_memory

        options: dict[str, Any] = {"memory": f"{limit}B"} if limit else {"recompute": run}
        tofu.enable(workers=1, device="cpu", log="quiet", **options)
        seen: list[Any] = []
        with session.looking(compiled=seen.append):
            step = make_step(name, smoke=smoke)
            step()
        found = [dict(step_memory(each.step, [mx.cpu(0)]).kinds) for each in seen]
        if limit:  # several programs were tried
            state = session.active().state  # type: ignore[union-attr]
            found = [each.plan.bytes_per_worker for each in state.footprints.values()]
        *_, kinds = (each for each in found if each["parameters"])
    print(json.dumps(kinds), flush=True)
    for line in sys.stdin:
        start = time.process_time()
        for _ in range(int(line)):
            step()
        print(json.dumps((time.process_time() - start) / int(line)), flush=True)


class Child:
    """A process that trains one network in one way.

    Attributes:
        kinds: the bytes of its step by kind; {} for plain MXNet.
    """

    def __init__(self, name: str, run: str, *, smoke: bool, limit: int = 0) -> None:
        command = [sys.executable, __file__, "--networks", name, "--child", run]
        self._process = subprocess.Popen(
            [*command, "--limit", str(limit), *["--smoke"] * smoke],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.kinds: dict[str, int] = self._answer()

    def seconds(self, steps: int) -> float:
        """Processor time of a step."""
        print(steps, file=self._process.stdin, flush=True)
        return float(self._answer())

    def end(self) -> None:
        """End the process."""
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()

    def _answer(self) -> Any:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise SystemExit(f"recompute: a process ended with status {self._process.wait()}")
        return json.loads(line)


def measure(name: str, rounds: int, *, smoke: bool) -> list[dict[str, Any]]:
    """The records of one network, one for each run."""
    children = {run: Child(name, run, smoke=smoke) for run in ("plain", "none", "all")}
    kinds = children["none"].kinds
    least = children["all"].kinds["activations"]
    limit = sum(kinds.values()) - kinds["activations"] // 2
    if least <= kinds["activations"] // 2:
        children["half"] = Child(name, "half", smoke=smoke, limit=limit)
    turns = [
        {run: child.seconds(1 if smoke else 3) for run, child in children.items()}
        for _ in range(rounds)
    ]
    for child in children.values():
        child.end()
    return records(name, {run: child.kinds for run, child in children.items()}, turns)


def records(
    name: str, kinds: dict[str, dict[str, int]], turns: list[dict[str, float]]
) -> list[dict[str, Any]]:
    """Activations, and medians over the rounds of a step's processor time and of its ratio."""
    return [
        {
            "network": name,
            "run": run,
            "activations_bytes": kinds[run].get("activations"),
            "cpu_ms": 1e3 * statistics.median(turn[run] for turn in turns),
            "cpu_ratio": statistics.median(turn[run] / turn["none"] for turn in turns),
        }
        for run in RUNS
        if run in kinds
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--rounds", type=int, default=7, help="turns of each process (7)")
    parser.add_argument("--smoke", action="store_true", help="reduced models")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to write JSON")
    parser.add_argument("--child", choices=RUNS, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        serve(args.networks[0], args.child, args.limit, smoke=args.smoke)
        return
    load, measurements = os.getloadavg()[0], []
    for name in args.networks:
        for record in measure(name, args.rounds, smoke=args.smoke):
            size = record["activations_bytes"]
            shown = "" if size is None else f"{size / 2**20:.1f} MiB"
            print(
                f"{name:<8} {record['run']:<6} {shown:>10} {record['cpu_ms']:9.1f} ms CPU "
                f"{record['cpu_ratio']:6.2f}",
                flush=True,
            )
            measurements.append(record)
    if args.output:
        document = {"benchmark": "recompute", "load_average": load, "records": measurements}
        write_json(args.output, document)


if __name__ == "__main__":
    main()
