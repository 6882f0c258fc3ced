"""Random scripts with the habits of people's own, run as plain MXNet runs them and partitioned.

A script has a few small blocks, hybridized or not, and in each step does to them what people's
scripts do: it holds arrays over steps, uses heads in turn, feeds tokens back, reads lists of
contexts, runs a thread that reads, and so on. Both runs must show the same values, shapes, stale
gradients, warnings and errors.

    PYTHONPATH=tests/python python -m equality.random_scripts 0-99
"""

from __future__ import annotations

import random
import sys
import threading
import traceback
import warnings
from typing import Any, Callable

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu

WIDTH, BATCH, STEPS = 6, 4, 4
LARGEST = 1e6  # a script with larger values diverges, and amplifies any rounding
TOLERANCE = {"float64": 1e-8, "float32": 2e-3}


# --- blocks: they take one array of WIDTH features, and give one or two -----------------------


class Mlp(nn.HybridSequential):
    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.add(nn.Dense(8, activation="tanh", **sizes), nn.Dense(WIDTH, in_units=8))


class Heads(gluon.HybridBlock):
    """Two outputs that share a body; the second has running statistics."""

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.Dense(8, activation="tanh", **sizes)
            self.a = nn.Dense(WIDTH, in_units=8)
            self.b = nn.HybridSequential()
            self.b.add(nn.Dense(WIDTH, in_units=8, use_bias=False), nn.BatchNorm(in_channels=WIDTH))

    def hybrid_forward(self, F, x):
        z = self.body(x)
        return self.a(z), self.b(z)


class Side(gluon.HybridBlock):
    """Two outputs that share nothing: two operators, so MXNet records it as such."""

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.p, self.q = nn.Dense(WIDTH, **sizes), nn.Dense(WIDTH, **sizes)

    def hybrid_forward(self, F, x):
        return self.p(x), self.q(x)


class Own(gluon.HybridBlock):
    """Weights of its own, one of them not trained."""

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.w = self.params.get("w", shape=(WIDTH, WIDTH))
            self.scale = self.params.get("scale", shape=(1, WIDTH), grad_req="null")

    def hybrid_forward(self, F, x, w, scale):
        return x + F.broadcast_mul(F.dot(x, w), scale)


class Tokens(gluon.HybridBlock):
    """Feeds the tokens that it chose itself to an Embedding."""

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.scores = nn.Dense(5, **sizes)
            self.embed = nn.Embedding(5, WIDTH)

    def hybrid_forward(self, F, x):
        scores = self.scores(x)
        return F.broadcast_add(self.embed(F.argmax(scores, axis=1)), F.sum(scores, 1, True))


class Loop(gluon.HybridBlock):
    """A loop with a counter that begins at F.zeros.

    Never hybridized: MXNet's hybridized loop gives its weights gradients that nothing has written.
    """

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.w = self.params.get("w", shape=(WIDTH, WIDTH))

    def hybrid_forward(self, F, x, w):
        def body(i, s):
            s = F.tanh(F.dot(s, w))
            return [s], [i + 1, s]

        counter = F.zeros((1,))
        return F.contrib.while_loop(lambda i, s: i < 2, body, [counter, x], max_iterations=2)[1][1]


class Broadcast(gluon.HybridBlock):
    """Multiplies as arrays broadcast and symbols do not; never hybridized."""

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.a, self.b = nn.Dense(8, **sizes), nn.Dense(WIDTH, in_units=8)

    def hybrid_forward(self, F, x):
        return self.b(F.tanh(self.a(x)) * F.mean(x, axis=1, keepdims=True))


class Reads(gluon.HybridBlock):
    """Reads a value in its code; never hybridized."""

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.a, self.b = nn.Dense(8, **sizes), nn.Dense(WIDTH, in_units=8)

    def hybrid_forward(self, F, x):
        return self.b(F.tanh(self.a(x))) * (1 + 0.1 * float(x[0, 0].asscalar() > 0))


class Branch(gluon.HybridBlock):
    """Has code that only predictions run, and that raises; never hybridized."""

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.a = nn.Dense(WIDTH, use_bias=False, **sizes)
            self.norm = nn.BatchNorm(in_channels=WIDTH)

    def hybrid_forward(self, F, x):
        y = self.norm(self.a(x)) + F.tanh(x)
        return y if autograd.is_training() else F.broadcast_add(y, F.ones((BATCH + 1, WIDTH)))


EAGER = (Broadcast, Reads, Branch)
BLOCKS = (Mlp, Heads, Heads, Side, Own, Tokens, Loop, *EAGER)


# --- habits ------------------------------------------------------------------------------------

TAKES: dict[str, Callable[[Any], Any]] = {
    "data": lambda p: p.data(),
    "list": lambda p: p.list_data()[0],
    "slice": lambda p: p.data()[0:1],
    "reshaped": lambda p: p.data().reshape((-1,)),
    "detached": lambda p: p.data().detach(),
    "grad": lambda p: p.grad(),
    "list of grads": lambda p: p.list_grad()[0],
    "reshaped grad": lambda p: p.grad().reshape((-1,)),
}
HABITS = (
    "hold from before", "hold", "hold from record", "write", "penalty", "heads in turn",
    "backward twice", "clip", "thread", "add", "ask", "predict", "zero_grad", "read output", "tie",
    "hybrid loss", "input gradient", "set_data",
)  # fmt: skip


class Script:
    """A script drawn from a seed; ``run`` returns all that it has seen."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(f"script {seed}")
        self.seed = seed
        self.dtype = rng.choice(("float64", "float64", "float32"))
        self.workers = rng.choice((2, 2, 3, 5))
        self.habits = frozenset(h for h in HABITS if rng.random() < 0.3)
        smooth = [("sgd", {}), ("sgd", {"momentum": 0.9, "wd": 0.1})]
        self.optimizer = rng.choice(smooth + [("adam", {})] * (self.dtype == "float64"))
        kinds = [kind for kind in BLOCKS if self.dtype == "float32" or kind is not Loop]
        self.kinds = [rng.choice(kinds) for _ in range(rng.randint(1, 3))]
        self.modes = [
            "never"
            if k in (*EAGER, Loop)
            else rng.choice(("never", "never", "whole", "static", "inside"))
            for k in self.kinds
        ]
        self.deferred = rng.random() < 0.3

    def text(self) -> str:
        """The script in one line."""
        blocks = [f"{k.__name__} {m}" for k, m in zip(self.kinds, self.modes)]
        return (
            f"seed {self.seed}: {blocks}, {self.dtype}, {self.workers} workers, "
            f"{self.optimizer}, {sorted(self.habits)}"
        )

    def run(self) -> list[tuple[str, Any]]:
        """Run it; names and values in the order in which the script sees them."""
        return _Run(self).run()


class _Run:
    def __init__(self, script: Script) -> None:
        self.script, self.habits = script, script.habits
        self.rng = random.Random(f"run {script.seed}")
        self.seen: list[tuple[str, Any]] = []
        self.held: list[tuple[str, Any]] = []
        mx.random.seed(script.seed)
        np.random.seed(script.seed)
        sizes = {} if script.deferred else {"in_units": WIDTH}
        self.blocks = [kind(sizes, prefix=f"b{i}_") for i, kind in enumerate(script.kinds)]
        if "tie" in self.habits:
            self.blocks.append(self.blocks[0])
        for block, mode in zip(self.blocks, script.modes):
            self.start(block, mode)
        params: dict[str, Any] = {}
        for block in self.blocks:
            params.update(block.collect_params())
        self.params = params
        # Through a partitioned block autograd.grad updates all running statistics, even of layers
        # of which it computes no gradient.
        self.has_statistics = any("running" in name for name in params)
        # tofu keeps stale gradients that a script has read before training; else they may be gone.
        self.keeps = not script.deferred and self.rng.random() < 0.5
        self.trained = [p for p in params.values() if p.grad_req != "null"]
        name, options = script.optimizer
        self.trainer = gluon.Trainer(params, name, {"learning_rate": 0.01, **options})
        self.loss = gluon.loss.L2Loss()
        if "hybrid loss" in self.habits:
            self.loss.hybridize()

    def start(self, block: Any, mode: str) -> None:
        block.cast(self.script.dtype)
        block.initialize(mx.init.Normal(0.3))
        if mode == "inside":
            for child in block._children.values():
                child.hybridize()
        elif mode != "never":
            block.hybridize(static_alloc=mode == "static")

    def run(self) -> list[tuple[str, Any]]:
        stop = threading.Event()
        reader = threading.Thread(target=self.read, args=(stop,), daemon=True)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            if "hold from before" in self.habits and not self.script.deferred:
                self.take()
            if self.keeps:
                for parameter in self.trained:
                    parameter.grad()
            if "add" in self.habits:
                for parameter in self.trained:
                    parameter.grad_req = "add"
            try:
                for step in range(STEPS):
                    if step == 1 and "thread" in self.habits:
                        reader.start()
                    self.step(step)
            finally:
                stop.set()
                if reader.ident is not None:
                    reader.join()
        for name, parameter in self.params.items():
            self.see(f"at the end {name}", parameter.data())
        texts = {str(w.message).split("\n")[0] for w in told if "tofu" not in str(w.message)}
        self.seen.append(("warnings", sorted(texts)))
        return self.seen

    def read(self, stop: threading.Event) -> None:
        """A thread that only reads."""
        while not stop.wait(0.001):
            for parameter in self.trained[:2]:
                parameter.data().norm().asscalar()
                parameter.list_data()[0].sum().asscalar()

    def see(self, name: str, value: Any) -> None:
        self.seen.append((name, value.asnumpy().astype("float64")))

    def take(self) -> None:
        """Hold an array of a parameter from now on."""
        kinds = [kind for kind in sorted(TAKES) if "grad" not in kind or self.keeps]
        kind, parameter = self.rng.choice(kinds), self.rng.choice(self.trained)
        self.held.append((kind, TAKES[kind](parameter)))

    def input(self) -> Any:
        return mx.nd.array(np.random.normal(size=(BATCH, WIDTH)), dtype=self.script.dtype)

    def forward(self, x: Any) -> list[Any]:
        """The outputs of all blocks, each of which reads one value before it."""
        values = [x]
        for block in self.blocks:
            found = block(values[self.rng.randrange(len(values))])
            values += found if isinstance(found, (list, tuple)) else [found]
        return values[1:]

    def losses(self, values: list[Any]) -> list[Any]:
        """One or two losses of some of the outputs."""
        rng = self.rng
        if "read output" in self.habits:
            self.see("output read", rng.choice(values))
        used = values
        if "heads in turn" in self.habits:
            used = rng.sample(values, rng.randint(1, len(values)))
        terms = []
        for value in used:
            if rng.random() < 0.3:
                terms.append(self.loss(value, mx.nd.ones_like(value)).sum())
            else:
                terms.append((value**2 + value.sin()).sum() * rng.choice((1, 1, 1, 0)))
        if "penalty" in self.habits:
            if "hold from record" in self.habits and rng.random() < 0.5:
                self.take()
            for kind, array in self.held:
                if rng.random() < 0.7 and "grad" not in kind:
                    terms.append(0.1 * (array**2).sum())
            terms.append(0.1 * (rng.choice(self.trained).data() ** 2).sum())
        cut = rng.randint(0, len(terms) - 1) if "backward twice" in self.habits else 0
        return [sum(part[1:], part[0]) for part in (terms[:cut], terms[cut:]) if part]

    def backward(self) -> None:
        x = self.input()
        # In which order two calls of a block update running statistics depends, in plain MXNet, on
        # the order of its operators' backward passes, which input gradients change.
        may_ask = not (self.has_statistics and "tie" in self.habits)
        if "input gradient" in self.habits and may_ask and self.rng.random() < 0.5:
            x.attach_grad()
        with autograd.record():
            losses = self.losses(self.forward(x))
        if "ask" in self.habits and not self.has_statistics:
            self.ask(losses[0])
        if len(losses) > 1 and self.rng.random() < 0.3:
            autograd.backward(losses)
        else:
            for loss in losses:
                loss.backward(retain_graph=loss is not losses[-1])
        for loss in losses:
            self.see("loss", loss)
        if x.grad is not None and all(mode != "never" for mode in self.script.modes):
            self.see("gradient of the input", x.grad)

    def ask(self, loss: Any) -> None:
        # Plain MXNet's autograd.grad returns memory that nothing has written for most biases.
        parameter = self.rng.choice([p for p in self.trained if p.name.endswith(("weight", "w"))])
        try:
            (found,) = autograd.grad(loss, [parameter.data()], retain_graph=True)
            self.see(f"asked {parameter.name}", found)
        except mx.MXNetError:
            self.seen.append(("asked", "MXNetError"))

    def step(self, step: int) -> None:
        rng = self.rng
        if "predict" in self.habits and Branch not in self.script.kinds:
            for value in self.forward(self.input()):
                self.see(f"step {step} prediction", value)
        if "hold" in self.habits and step:
            self.take()
        for _ in range(2 if "add" in self.habits else 1):
            self.backward()
        for parameter in self.trained:
            is_fresh = bool(parameter.data()._fresh_grad)
            self.seen.append((f"fresh {parameter.name}", is_fresh))
            if is_fresh or self.keeps:
                self.see(f"step {step} gradient of {parameter.name}", parameter.grad())
        if "clip" in self.habits:
            self.clip()
        try:
            self.trainer.step(BATCH)
        except UserWarning as warning:
            self.seen.append(("stale", type(warning).__name__))
            self.trainer.step(BATCH, ignore_stale_grad=True)
        for kind, array in self.held:
            self.see(f"step {step} held {kind}", array)
        if "write" in self.habits and self.held and rng.random() < 0.7:
            self.held[-1][1][:] *= 0.5
        if "zero_grad" in self.habits:
            for block in self.blocks:
                block.collect_params().zero_grad()
        if "set_data" in self.habits and step == 1:
            parameter = rng.choice(self.trained)
            parameter.set_data(parameter.data() * 0.9)

    def clip(self) -> None:
        """GluonNLP's: the norm over one array of each parameter, for each context."""
        contexts = len(self.trained[0].list_ctx())
        clipped = [p for p in self.trained if self.keeps or p.data()._fresh_grad]
        chosen = [p.list_grad()[i % contexts] for i, p in enumerate(clipped)]
        norm = sum(float((g**2).sum().asscalar()) for g in chosen) ** 0.5
        self.seen.append(("norm", np.array(norm)))
        for parameter in clipped:
            for gradient in parameter.list_grad():
                gradient *= min(1.0, 5.0 / (norm + 1e-9))


# --- comparing -----------------------------------------------------------------------------------


def difference(script: Script, found: list[Any], expected: list[Any]) -> str:
    """The first difference between two runs, in words; empty if there is none."""
    for (name, one), (other_name, other) in zip(found, expected):
        if name != other_name:
            return f"sees {name}, expected {other_name}"
        if isinstance(other, np.ndarray):
            if one.shape != other.shape:
                return f"{name}: shape {one.shape}, expected {other.shape}"
            scale = np.abs(other).max(initial=0) + 1
            error = np.abs(one - other).max(initial=0)
            if not error <= TOLERANCE[script.dtype] * scale:
                return f"{name}: differs by {error:.3g} of {scale:.3g}"
        elif one != other:
            return f"{name}: {one}, expected {other}"
    return "" if len(found) == len(expected) else f"{len(found)} values, expected {len(expected)}"


def compare(seed: int) -> str:
    """Run a seed's script plainly and partitioned; the first difference, or empty.

    A script that plain MXNet refuses must be refused by both.
    """
    script = Script(seed)
    outcomes = []
    for is_partitioned in (False, True):
        if is_partitioned:
            tofu.enable(workers=script.workers, device="cpu", log="quiet")
        try:
            outcomes.append(script.run())
        except Exception as error:
            outcomes.append([("raises", type(error).__name__)])
            if is_partitioned and outcomes[0][0][0] != "raises":
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
                return f"raises {type(error).__name__} at {where}: {str(error)[:300]}"
        finally:
            if is_partitioned:
                tofu.disable()
    if any(isinstance(v, np.ndarray) and not np.all(abs(v) < LARGEST) for _, v in outcomes[0]):
        return ""
    return difference(script, outcomes[1], outcomes[0])


def main() -> None:
    """Compare the seeds of the command line, such as 0-99; print those that differ."""
    first, _, last = sys.argv[1].partition("-")
    count = wrong = 0
    for seed in range(int(first), int(last or first) + 1):
        text = compare(seed)
        count += 1
        if text:
            wrong += 1
            print(f"{Script(seed).text()}\n    {text}", flush=True)
    print(f"{count} scripts, {wrong} differ")


if __name__ == "__main__":
    main()
