"""Draws a Spec from a seed: the layers, and the script's use of them."""

from __future__ import annotations

import contextlib
import io
import random
from typing import Optional

import mxnet as mx

from .build import Net
from .kinds import (
    BATCHES,
    CHANNELS,
    FEATURES,
    KINDS,
    LENGTHS,
    ODD,
    SIDES,
    WORDS,
    WORKERS,
    Kind,
    OddSizes,
    Shape,
)
from .spec import TRAINERS, Input, Node, Spec

FIRST_ODD = 10_000  # seeds from here on draw odd sizes, and numbers of workers that do not divide
MAX_ELEMENTS = 3000  # of one example of a value
# Optimizers that divide by no gradient's size: a gradient whose true value is 0 stays harmless.
SMOOTH = {
    "sgd": [{"learning_rate": 0.05}, {"learning_rate": 0.05, "momentum": 0.9, "wd": 1e-3}],
    "nag": [{"learning_rate": 0.05, "momentum": 0.9}],
    "dcasgd": [{"learning_rate": 0.05}],  # MXNet's fails with a momentum
}
DIVIDING = {
    "adam": [{"learning_rate": 0.01}, {"learning_rate": 0.01, "wd": 0.01}],
    "adagrad": [{"learning_rate": 0.02}],
    "adadelta": [{}],
    "adamax": [{"learning_rate": 0.01}],
    "nadam": [{"learning_rate": 0.01}],
    "rmsprop": [{"learning_rate": 0.01}, {"learning_rate": 0.01, "centered": True}],
    "ftrl": [{"learning_rate": 0.1}],
    "ftml": [{"learning_rate": 0.01}],
    "signum": [{"learning_rate": 0.01}],
    "lars": [{"learning_rate": 0.1, "momentum": 0.9}],
    "lamb": [{"learning_rate": 0.01}],
    "lbsgd": [{"learning_rate": 0.05, "momentum": 0.9}],
    "sgld": [{"learning_rate": 0.01}],
}
# Optimizers that keep their states in float32 and fail with other weights.
SINGLE = ("adadelta", "adagrad", "ftrl", "rmsprop")
# An optimizer that sometimes fails to read weights in oneDNN's blocks ("!is_view").
DOUBLE = ("lamb",)
HABITS = (
    "predict first",
    "predict between",
    "input gradients",
    "add gradients",
    "call twice",
    "hybridized loss",
    "head gradients",
    "one sum",
)


class _Drawer:
    """A net that grows layer by layer; MXNet's own inference rejects layers that do not fit."""

    def __init__(self, rng: random.Random, batch: int) -> None:
        self.rng, self.batch = rng, batch
        self.inputs: list[Input] = []
        self.nodes: list[Node] = []
        self.shapes: list[Shape] = []
        self.domains: list[str] = []
        # Values that no layer reads so far, or that are the ends of their trunks.
        self.used: set[int] = set()

    def add_input(self, domain: str, like: Optional[Input] = None) -> int:
        rng = self.rng
        if like is not None:
            made = like
        elif domain == "image":
            rank = rng.choice((1, 2, 2, 2, 3))
            space = [rng.choice(SIDES[rank]) for _ in range(rank)]
            if rng.random() < 0.5:
                space = [space[0]] * rank
            made = Input((rng.choice(CHANNELS), *space))
        elif domain == "sequence":
            made = Input((rng.choice(LENGTHS), rng.choice(CHANNELS)))
        elif domain == "tokens":
            made = Input((rng.choice(LENGTHS),), words=rng.choice(WORDS))
        else:
            made = Input((rng.choice(FEATURES),))
        self.inputs.append(made)
        self.shapes.append((self.batch, *made.shape))
        self.domains.append(domain)
        return len(self.shapes) - 1

    def try_node(self, kind: Kind, inputs: tuple[int, ...], frozen: str = "") -> Optional[int]:
        shapes = [self.shapes[i] for i in inputs]
        extra = (self.inputs[inputs[0]].words,) if kind.takes == ("tokens",) else ()
        options = kind.draw(self.rng, *shapes, *extra)
        return (
            None if options is None else self.append(Node(kind.name, inputs, options, None, frozen))
        )

    def append(self, node: Node) -> Optional[int]:
        shape = self._infer(node)
        if shape is None:
            return None
        size = 1
        for extent in shape[1:]:
            size *= extent
        if not 0 < size <= MAX_ELEMENTS or shape[0] != self.batch:
            return None
        self.nodes.append(node)
        self.shapes.append(shape)
        self.domains.append(KINDS[node.kind].gives)
        self.used |= set(node.inputs)
        return len(self.shapes) - 1

    def _infer(self, node: Node) -> Optional[Shape]:
        """The shape of a layer's output, or None if MXNet refuses the layer."""
        inputs = tuple(Input(self.shapes[i][1:]) for i in node.inputs)
        alone = Node(node.kind, tuple(range(len(inputs))), node.options)
        names = [f"data{i}" for i in range(len(inputs))]
        known = {name: self.shapes[i] for name, i in zip(names, node.inputs)}
        try:
            net = Net(Spec(inputs, (alone,), (len(inputs),), ()))
            symbol = net(*(mx.sym.var(name) for name in names))
            with contextlib.redirect_stdout(io.StringIO()):  # it prints what it refuses
                outputs = symbol.infer_shape(**known)[1]
            return outputs[0] if outputs else None
        except (mx.MXNetError, ValueError):
            return None

    def grow(self, value: int, wanted: Optional[str] = None) -> int:
        """Add a layer on a value, whose output has the domain `wanted` if possible."""
        domain = self.domains[value]
        kinds = [k for k in KINDS.values() if k.takes == (domain,) and wanted in (None, k.gives)]
        for _ in range(20):
            (kind,) = self.rng.choices(kinds, [k.weight for k in kinds])
            frozen = self.rng.choice(("all", "weight", "bias")) if self.rng.random() < 0.08 else ""
            found = self.try_node(kind, (value,), frozen)
            if found is not None:
                return found
        return value

    def repeat(self, value: int) -> int:
        """Add the layer that made a value once more, with the same parameters."""
        at = value - len(self.inputs)
        node = self.nodes[at] if at >= 0 else None
        if node is None or len(node.inputs) != 1:
            return value
        if (
            self.shapes[value] != self.shapes[node.inputs[0]]
            or self.domains[value] != KINDS[node.kind].takes[0]
        ):
            return value
        shared = at if node.shares is None else node.shares
        found = self.append(Node(node.kind, (value,), node.options, shared))
        return value if found is None else found

    def follow(self, start: int, nodes: list[int]) -> int:
        """Add the layers of another trunk on a value, with the same parameters."""
        values: dict[int, int] = {}
        for value in nodes:
            at = value - len(self.inputs)
            node = self.nodes[at]
            inputs = tuple(values.get(i, start) for i in node.inputs)
            shared = at if node.shares is None else node.shares
            found = self.append(Node(node.kind, inputs, node.options, shared))
            if found is None:
                return start
            values[value] = found
        return values[nodes[-1]] if nodes else start

    def join(self, one: int, other: int) -> int:
        """Join two values; make them flat if no other kind of layer joins them."""
        for _ in range(3):
            pair = (self.domains[one], self.domains[other])
            kinds = [k for k in KINDS.values() if k.takes in (pair, pair[::-1])]
            self.rng.shuffle(kinds)
            for kind in kinds:
                inputs = (one, other) if kind.takes == pair else (other, one)
                found = self.try_node(kind, inputs)
                if found is not None:
                    return found
            one, other = self.flatten(one), self.flatten(other)
        raise AssertionError("two flat values can always be joined")

    def flatten(self, value: int) -> int:
        for _ in range(6):
            if self.domains[value] == "flat":
                return value
            goal = None if self.domains[value] == "tokens" else "flat"
            value = self.grow(value, goal)
        raise AssertionError("a value cannot be made flat")


def draw(seed: int) -> Spec:
    """The net and the script of a seed."""
    rng = (OddSizes if seed >= FIRST_ODD else random.Random)(f"net {seed}")
    drawer = _Drawer(rng, rng.choice(BATCHES))
    domains = ("image", "image", "image", "sequence", "sequence", "tokens", "flat")
    count = rng.choice((1, 1, 1, 2, 2, 3))
    # All inputs come first: values are numbered in that order.
    starts = [drawer.add_input(rng.choice(domains)) for _ in range(count)]
    siamese = rng.random() < 0.15
    if siamese:
        starts.append(drawer.add_input(drawer.domains[0], like=drawer.inputs[0]))
    ends = []
    for number, value in enumerate(starts[:count]):
        first = len(drawer.shapes)
        for _ in range(rng.randint(1, 5)):
            value = drawer.grow(value)
            if rng.random() < 0.1:
                value = drawer.repeat(value)
        ends.append(value)
        if siamese and number == 0:
            trunk = list(range(first, len(drawer.shapes)))
            ends.append(drawer.follow(starts[count], trunk))
    value, outputs = ends[0], []
    for other in ends[1:]:
        value = drawer.join(value, other)
        if rng.random() < 0.4:
            value = drawer.grow(value)
    for _ in range(rng.randint(0, 3)):
        if rng.random() < 0.15:
            outputs.append(value)
        before, value = value, drawer.grow(value)
        if rng.random() < 0.2:
            value = drawer.join(before, value)
    if drawer.domains[value] == "tokens" or rng.random() < 0.7:
        value = drawer.grow(drawer.flatten(value), "flat")
    if not any(n.kind in _TRAINED for n in drawer.nodes):
        value = drawer.try_node(KINDS["dense"], (drawer.flatten(value),)) or value
    return _script(rng, seed, drawer, [*(o for o in outputs if o >= len(starts)), value])


# Kinds that surely have parameters; a net without any would not be partitioned.
_TRAINED = ("dense", "convolution", "transposed", "fused", "unrolled", "self_attention")


def _script(rng: random.Random, seed: int, drawer: _Drawer, outputs: list[int]) -> Spec:
    """The losses, the optimizer and the habits of the script."""
    losses = []
    for value in outputs:
        flat = drawer.domains[value] == "flat" and drawer.shapes[value][1] > 1
        names = ("l2", "huber", "square", "projection", "logistic")
        losses.append(rng.choice(("cross entropy", *names) if flat else names))
    dtype = rng.choice(("float32", "float64"))
    optimizers = SMOOTH if rng.random() < 0.4 else DIVIDING
    failing = DOUBLE if dtype == "float32" else SINGLE
    name = rng.choice([n for n in sorted(optimizers) if n not in failing])
    steps = rng.choice((2, 2, 3))
    last = rng.choice((drawer.batch,) * 3 + (max(1, drawer.batch - 1),))
    static = rng.random() < 0.3
    workers = ODD[WORKERS] if seed >= FIRST_ODD else WORKERS
    habits = tuple(h for h in HABITS if rng.random() < 0.15)
    # Drawn by a separate generator, so that this habit does not change the nets of seeds.
    if random.Random(f"trainers {seed}").random() < 0.15:
        habits += (TRAINERS,)
    return Spec(
        inputs=tuple(drawer.inputs),
        nodes=tuple(drawer.nodes),
        outputs=tuple(outputs),
        losses=tuple(losses),
        optimizer=(name, rng.choice(optimizers[name])),
        dtype=dtype,
        batches=(drawer.batch,) * (steps - 1) + (last,),
        workers=workers[seed % len(workers)],
        fetch="plain" if rng.random() < 0.1 else "multifetch",
        hybridize={"static_alloc": True, "static_shape": rng.random() < 0.5} if static else {},
        habits=habits,
        seed=seed,
    )
