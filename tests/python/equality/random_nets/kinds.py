"""The register of layer kinds.

A kind draws its options for the shapes of its inputs, or None where it does not fit, and makes
the block. ``takes`` and ``gives`` are domains: "image" is (N, C, space...), "sequence" is
(N, T, C), "flat" is (N, C), "tokens" is (N, T) of words.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Callable, Optional

from mxnet.gluon import nn

Shape = tuple[int, ...]
Options = Optional[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Kind:
    """Draws and makes layers of one kind.

    Attributes:
        name: its name in a Spec.
        takes: the domain of each input.
        gives: the domain of its output.
        draw: from a generator and the shapes of its inputs to options, or None.
        make: from options to a block that takes the inputs.
        weight: how often it is drawn, relative to other kinds.
    """

    name: str
    takes: tuple[str, ...]
    gives: str
    draw: Callable[..., Options]
    make: Callable[..., nn.HybridBlock]
    weight: float


KINDS: dict[str, Kind] = {}


def kind(
    takes: str,
    gives: str,
    draw: Callable[..., Options] = lambda rng, *shapes: {},
    weight: float = 1.0,
) -> Callable[[Callable[..., nn.HybridBlock]], Callable[..., nn.HybridBlock]]:
    """Register a function that makes a block; its name is the kind's."""

    def register(make: Callable[..., nn.HybridBlock]) -> Callable[..., nn.HybridBlock]:
        name = make.__name__
        assert name not in KINDS, name
        KINDS[name] = Kind(name, tuple(takes.split()), gives, draw, make, weight)
        return make

    return register


class Function(nn.HybridBlock):
    """A layer without parameters, or with the children that it is given.

    Args:
        function: from F, the inputs, and the children by name to the output.
        exact: computes the same in float64, where MXNet has the operator in float32 only.
        children: blocks that the function uses.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        exact: Optional[Callable[..., Any]] = None,
        **children: Any,
    ) -> None:
        super().__init__()
        self._function, self._exact = function, exact
        self._names = tuple(children)
        for name, child in children.items():
            setattr(self, name, child)

    def cast(self, dtype):
        super().cast(dtype)
        if self._exact is not None and dtype == "float64":
            self._function = self._exact

    def hybrid_forward(self, F, *inputs):
        children = {name: getattr(self, name) for name in self._names}
        return self._function(F, *inputs, **children)


class Weighted(nn.HybridBlock):
    """A layer with parameters of its own.

    Args:
        function: from F, the input and the parameters by name to the output.
        shapes: of the parameters; 0 is what the input decides, none of which is left.
    """

    def __init__(self, function: Callable[..., Any], **shapes: Shape) -> None:
        super().__init__()
        self._function = function
        for name, shape in shapes.items():
            setattr(self, name, self.params.get(name, shape=shape, allow_deferred_init=True))

    def hybrid_forward(self, F, x, **parameters):
        return self._function(F, x, **parameters)


def choose(rng: random.Random, **choices: Any) -> dict[str, Any]:
    """One of each list of choices."""
    return {name: rng.choice(values) for name, values in choices.items()}


def divisors(number: int) -> list[int]:
    """All divisors of a number."""
    return [d for d in range(1, number + 1) if number % d == 0]


WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 8, 12, 12, 13, 16, 24)
CHANNELS = (1, 2, 3, 4, 5, 6, 8)
HIDDEN = (2, 3, 4, 5, 6, 8, 12)
WORDS = (5, 7, 8, 12, 24)
LENGTHS = tuple(range(1, 8))
FEATURES = tuple(range(1, 17))
# The sides of images, by the number of their dimensions.
SIDES = {1: tuple(range(2, 17)), 2: tuple(range(2, 11)), 3: tuple(range(2, 7))}
BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 8, 12, 12)
WORKERS = (2, 3, 4, 6, 8)
ODD = {
    WIDTHS: (3, 5, 5, 7, 7, 9, 9, 11, 13, 13, 17, 255),
    CHANNELS: (3, 5, 7, 9, 13),
    HIDDEN: (5, 7, 9, 13),
    WORDS: (5, 7, 13, 29, 255),
    LENGTHS: (3, 5, 7, 9),
    FEATURES: (5, 7, 9, 13, 255),
    SIDES[1]: (5, 7, 9, 13),
    SIDES[2]: (5, 7, 9, 13),
    SIDES[3]: (3, 5, 7),
    BATCHES: (7, 10, 15),
    WORKERS: (2, 3, 5, 6, 7),
}


class OddSizes(random.Random):
    """A generator that takes odd sizes where another one takes any."""

    def choice(self, seq: Any) -> Any:
        return super().choice(ODD.get(seq, seq) if isinstance(seq, tuple) else seq)


ACTIVATIONS = ("relu", "sigmoid", "tanh", "softrelu", "softsign")
