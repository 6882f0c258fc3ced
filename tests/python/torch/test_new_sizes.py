"""Calls of other sizes need no new trace: one trace has names for sizes."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import numbers
from typing import Any, Callable

import pytest
import torch
from torch import nn

import tofu.torch
from tofu.torch.graphs.module_graph import training_graph
from tofu.torch.tracing.module_trace import trace_open
from tofu.torch.tracing.named_numbers import named_places

from . import hugging
from .ranks import on_ranks
from .scripts import Wrap, compare
from .training import GRADIENT, LOSS, difference

transformers = pytest.importorskip("transformers")
parallelizing = importlib.import_module("tofu.torch.parallelize")  # the package has the function


class Tagger(nn.Module):
    """Tags words; `kind` says how it uses the length."""

    def __init__(self, kind: str = "") -> None:
        super().__init__()
        self.kind = kind
        self.words = nn.Embedding(20, 8)
        self.places = nn.Parameter(torch.randn(64, 8))
        self.mix = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 5)
        self.last = 0

    def forward(self, words: Any, tags: Any, weight: float = 1.0) -> Any:
        length = words.shape[1]
        data = self.words(words) + self.places[:length]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        data = data + self.mix(data, data, data, attn_mask=mask, need_weights=False)[0]
        if self.kind == "long" and length > 10:
            data = data * 2
        if self.kind == "value":
            data = data * int(f"{length}")
        if self.kind == "kept":
            self.last = length
        loss = nn.functional.cross_entropy(self.out(data).flatten(0, 1), tags.flatten())
        return {"loss": loss * weight / length**0.5, "length": length}


def inputs(batch: int, length: int) -> tuple[Any, Any]:
    return torch.randint(20, (batch, length)), torch.randint(5, (batch, length))


def count_traces(monkeypatch: Any) -> dict[str, int]:
    """Count the traces that are made from now on, by kind."""
    made = {"trace": 0, "trace_open": 0}
    for name in made:
        own = getattr(parallelizing, name)

        def counted(*args: Any, own: Any = own, name: str = name, **kwargs: Any) -> Any:
            made[name] += 1
            return own(*args, **kwargs)

        monkeypatch.setattr(parallelizing, name, counted)
    return made


def trained(make: Any, calls: list[Any], dtype: torch.dtype, traces: Any) -> None:
    """Train whole and distributed by calls of several sizes, and compare every step."""
    patch = pytest.MonkeyPatch()
    made = count_traces(patch)
    torch.manual_seed(0)
    whole = make().to(dtype)
    parts = tofu.torch.parallelize(copy.deepcopy(whole), (2,), calls[0])
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (whole, parts)]
    for call in calls:
        found = [model(*call) for model in (whole, parts)]
        found = [each if isinstance(each, dict) else {"loss": each} for each in found]
        assert found[0].get("length") == found[1].get("length")
        losses = [each["loss"] for each in found]
        for loss in losses:
            loss.backward()
        assert difference(losses[0].detach(), losses[1].detach()) <= LOSS[dtype]
        for one, other in zip(whole.parameters(), parts.parameters()):
            assert difference(one.grad, other.grad.full_tensor()) <= GRADIENT[dtype]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    with torch.no_grad():
        for call in calls[:3]:
            one, other = (model(*call) for model in (whole, parts))
            one, other = (each["loss"] if isinstance(each, dict) else each for each in (one, other))
            assert difference(one, other) <= LOSS[dtype]
    patch.undo()
    assert traces in (None, tuple(made.values()))


@pytest.mark.parametrize(
    ("kind", "dtype", "sizes", "traces"),
    # Calls under no_grad are traced by themselves: once alone, and once for all sizes.
    [
        ("", torch.float64, [(4, 8), (4, 12), (4, 9), (4, 8), (4, 7)], (2, 2)),
        ("", torch.float32, [(4, 8), (4, 12), (4, 9)], (2, 2)),
        # One trace for lengths up to 10, and one for others.
        ("long", torch.float64, [(4, 8), (4, 12), (4, 9), (4, 16)], (2, 4)),
        # If a trace holds for one length only, every length has its own.
        ("value", torch.float64, [(4, 8), (4, 12), (4, 9)], (6, 2)),
        ("kept", torch.float64, [(4, 8), (4, 12)], None),
        # First the length has a name, then the batch, too. A size of 1 has none.
        ("", torch.float64, [(4, 8), (4, 12), (6, 10), (4, 1)], (3, 4)),
    ],
)
def test_one_trace_serves_all_sizes(kind, dtype, sizes, traces) -> None:
    torch.manual_seed(1)
    calls = [inputs(*each) for each in sizes]
    on_ranks(2, trained, lambda: Tagger(kind), calls, dtype, traces)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_models_of_transformers_are_traced_once_for_all_lengths(name) -> None:
    torch.manual_seed(1)
    words = [torch.randint(3, 64, (4, length)) for length in (8, 12, 9)]
    on_ranks(
        2, trained, lambda: hugging.made(name, transformers)[0], [(each, each) for each in words],
        torch.float32, (2, 2),
    )  # fmt: skip


def test_a_trace_holds_for_the_sizes_that_it_names() -> None:
    calls = [{0: (4, 8), 1: (4, 8)}, {0: (4, 12), 1: (4, 12)}]
    places = named_places(calls)
    assert places == [frozenset({(0, 1), (1, 1)})]
    found = trace_open(Tagger("long"), inputs(4, 12), {}, places)
    assert found.at({0: (4, 30), 1: (4, 30)}) is not None
    assert found.at({0: (4, 9), 1: (4, 9)}) is None  # forward decides otherwise
    assert found.at({0: (4, 30), 1: (4, 31)}) is None
    assert found.at({0: (4, 1), 1: (4, 1)}) is None
    assert found.at({0: (4, 99), 1: (4, 99)}) is None  # more than there are places
    assert found.at({0: (6, 30), 1: (6, 30)}) is None  # the batch has no name


# --- Numbers with names are numbers for the script -------------------------------------------


class Asking(nn.Module):
    """Scales its outputs by what a function finds of a number."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layer, self.ask = nn.Linear(4, 4), ask

    def forward(self, data, number=None):
        rows = data.shape[0] if number is None else number
        return self.layer(data) * (2 if self.ask(rows) else 1)


def asking(ask: Callable[[Any], Any], traces: Any = None) -> Callable[[Wrap], dict[str, Any]]:
    """A script that calls a module with several sizes and floats, and counts the traces."""

    def script(wrap: Wrap) -> dict[str, Any]:
        patch = pytest.MonkeyPatch()
        made = count_traces(patch)
        model, result = wrap(Asking(ask), torch.randn(6, 4)), {}
        for rows in (6, 8, 10, 8):
            result[f"{rows} rows"] = model(torch.randn(rows, 4)).detach()
        for number in (0.25, 0.5, 1.0, 0.5):
            result[f"{number}"] = model(torch.randn(6, 4), number).detach()
        assert not made["trace"] or traces in (None, tuple(made.values()))
        patch.undo()
        return result

    return script


@functools.singledispatch
def by_type(number: Any) -> bool:
    return False


by_type.register(int, lambda number: True)


def test_texts_of_numbers_are_those_of_the_call() -> None:
    on_ranks(
        2, compare,
        asking(lambda n: str(n) in ("8", "0.5")), asking(lambda n: f"{n}" == "8"),
        asking(lambda n: repr([n, 4]) == "[8, 4]"), asking(lambda n: format(n) == "0.5"),
        asking(lambda n: f"{n:.2f}" == "0.50"), asking(lambda n: str(n > 8) == "True"),
    )  # fmt: skip


def test_types_of_numbers_are_those_of_the_call() -> None:
    on_ranks(
        2, compare,
        asking(lambda n: isinstance(n, int), (2, 2)), asking(lambda n: n.__class__ is int),
        asking(lambda n: isinstance(n, float), (2, 2)), asking(lambda n: isinstance(n / 2, float)),
        asking(lambda n: isinstance(n, numbers.Integral)), asking(by_type),
        asking(lambda n: type(n) is int), asking(lambda n: type(n) in (float, complex)),
        asking(lambda n: isinstance(n > 8, bool)), asking(lambda n: (n > 8) is True),
    )  # fmt: skip


def test_ranks_compare_the_order_of_memory() -> None:
    """Messages have it, and a graph does not tell it."""
    traced = tofu.torch.trace(nn.Linear(3, 4), (torch.randn(2, 3),))
    assert any(operator.order(0) == (1, 0) for operator in traced.operators)
    plain = [
        dataclasses.replace(
            o, outputs=tuple(torch.empty(x.shape, device="meta") for x in o.outputs)
        )
        for o in traced.operators
    ]
    other = dataclasses.replace(traced, operators=tuple(plain))
    assert not any(operator.order(0) for operator in other.operators)
    assert training_graph(other).hash == training_graph(traced).hash
    assert parallelizing._identity(other) != parallelizing._identity(traced)
