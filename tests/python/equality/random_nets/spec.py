"""Random nets as data, drawn from a seed or written down for a shrunk case of a test."""

from __future__ import annotations

import dataclasses
from typing import Any

TRAINERS = "two trainers"  # a habit: each trains half of the parameters


@dataclasses.dataclass(frozen=True)
class Input:
    """An input of the net: its shape without the batch, and the words it may hold, if it does."""

    shape: tuple[int, ...]
    words: int = 0


@dataclasses.dataclass(frozen=True)
class Node:
    """A layer of the net.

    Attributes:
        kind: its name in ``kinds.KINDS``.
        inputs: numbers of values: the net's inputs come first, then the nodes in order.
        options: arguments of the kind.
        shares: the earlier node whose parameters it uses, or None.
        frozen: which of its parameters are not trained: "all", "weight", "bias" or "".
    """

    kind: str
    inputs: tuple[int, ...]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    shares: int | None = None
    frozen: str = ""


@dataclasses.dataclass(frozen=True)
class Spec:
    """A net and the script that trains it.

    Attributes:
        inputs: inputs of the net.
        nodes: its layers, in order.
        outputs: the values that it returns, one loss for each.
        losses: names in ``train.LOSSES``.
        optimizer: a name of mx.optimizer, and its parameters.
        dtype: "float32" or "float64".
        batches: the batch size of each step.
        workers: number of workers of the partitioned run.
        fetch: their kind of fetches.
        hybridize: options of hybridize().
        habits: the script's other habits; names in ``train.HABITS``.
    """

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    losses: tuple[str, ...]
    optimizer: tuple[str, dict[str, Any]] = ("sgd", {"learning_rate": 0.05})
    dtype: str = "float64"
    batches: tuple[int, ...] = (4, 4)
    workers: int = 2
    fetch: str = "multifetch"
    hybridize: dict[str, bool] = dataclasses.field(default_factory=dict)
    habits: tuple[str, ...] = ()
    seed: int = 0

    def text(self) -> str:
        """The net as Python that makes it, one layer a line."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        lines = []
        for name, value in fields.items():
            if name in ("inputs", "nodes"):
                first = 0 if name == "inputs" else len(self.inputs)
                inner = "".join(
                    f"        {_short(v)},  # {first + i}\n" for i, v in enumerate(value)
                )
                lines.append(f"    {name}=(\n{inner}    ),")
            else:
                lines.append(f"    {name}={value!r},")
        return "Spec(\n" + "\n".join(lines) + "\n)"


def _short(value: Any) -> str:
    shown = []
    for field in dataclasses.fields(value):
        found = getattr(value, field.name)
        default = {} if field.name == "options" else field.default
        if found != default:
            shown.append(f"{field.name}={found!r}")
    return f"{type(value).__name__}({', '.join(shown)})"


def from_text(text: str) -> Spec:
    """The Spec that `text` wrote."""
    names = {"Spec": Spec, "Input": Input, "Node": Node}
    found = eval(compile(text, "spec", "eval"), {"__builtins__": {}}, names)
    assert isinstance(found, Spec)
    return found
