"""Recurrent layers as one operator, which each rank runs by torch's own kernel on its sequences.

The backward pass runs the layer again, as kernels keep what no other kernel could read, so nothing
that is planned depends on the kernel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tofu.torch.graphs.traced import Entry, Operator, Traced
from tofu.torch.tiles.private_names import DispatchKey

__all__ = ["LAYERS", "may_gain_apart"]

aten: Any = torch.ops.aten
Tensor = Any  # torch.Tensor, whose methods are untyped
_LAYER = "Tensor data, Tensor[] states, Tensor[] weights, str kind, bool biases, bool two_ways"
_KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _layer(
    data: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor],
    kind: str, biases: bool, two_ways: bool, train: bool = False,
) -> list[Tensor]:  # fmt: skip
    """A layer's outputs (t, n, d * h), and its last states (d, n, h), of d directions.

    Args:
        data: (t, n, i).
        states: the first ones, (d, n, h): one, or an LSTM's two.
        weights: as torch has them, direction by direction.
        kind: one of _KINDS.
        biases: whether there are biases among the weights.
        two_ways: whether d is 2: the second direction runs backwards.
        train: whether the kernel keeps what its backward pass needs.
    """
    given = states if kind == "lstm" else states[0]
    kernel = getattr(aten, kind).input
    return list(kernel(data, given, weights, biases, 1, 0.0, train, two_ways, False))


def _layer_backward(
    grads: Sequence[Tensor], data: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor],
    kind: str, biases: bool, two_ways: bool,
) -> list[Tensor]:  # fmt: skip
    """The gradients of the data, the states and the weights, of those of all results."""
    with _Recorded(), torch.enable_grad():
        given = [each.detach().requires_grad_() for each in (data, *states, *weights)]
        first = 1 + len(states)
        results = _layer(
            given[0], given[1:first], given[first:], kind, biases, two_ways, train=True
        )
        return list(torch.autograd.grad(results, given, list(grads)))


class _Recorded:
    """Lets autograd see the calls of an operator's kernel, which it does not otherwise."""

    def __init__(self) -> None:
        hidden = torch._C._dispatch_tls_local_exclude_set()
        for key in (
            DispatchKey.AutogradFunctionality, DispatchKey.AutogradOther,
            DispatchKey.AutogradNestedTensor, DispatchKey.ADInplaceOrView,
        ):  # fmt: skip
            hidden = hidden.remove(key)
        self._guard = torch._C._ForceDispatchKeyGuard(
            torch._C._dispatch_tls_local_include_set(), hidden
        )

    def __enter__(self) -> None:
        self._guard.__enter__()

    def __exit__(self, *reason: Any) -> None:
        self._guard.__exit__(*reason)


def _shapes(
    data: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor],
    kind: str, biases: bool, two_ways: bool,
) -> list[Tensor]:  # fmt: skip
    directions, n, h = states[0].shape
    return [data.new_empty((data.shape[0], n, directions * h)), *map(torch.empty_like, states)]


def _shapes_backward(
    grads: Sequence[Tensor], data: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor],
    kind: str, biases: bool, two_ways: bool,
) -> list[Tensor]:  # fmt: skip
    return [each.new_empty(each.shape) for each in (data, *states, *weights)]


for _name, _function, _fake, _schema in (
    ("tofu::recurrent", _layer, _shapes, f"({_LAYER}) -> Tensor[]"),
    (
        *("tofu::recurrent_backward", _layer_backward, _shapes_backward),
        f"(Tensor[] grads, {_LAYER}) -> Tensor[]",
    ),
):
    torch.library.custom_op(_name, _function, mutates_args=(), schema=_schema)
    torch.library.register_fake(_name, _fake)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    data, states, weights, *ctx.settings = inputs
    ctx.states = len(states)
    ctx.save_for_backward(data, *states, *weights)


def _gradients(ctx: Any, grads: Sequence[Tensor]) -> Any:
    data, *others = ctx.saved_tensors
    states, weights = others[: ctx.states], others[ctx.states :]
    found = torch.ops.tofu.recurrent_backward(grads, data, states, weights, *ctx.settings)
    return found[0], found[1 : 1 + ctx.states], found[1 + ctx.states :], None, None, None


torch.library.register_autograd("tofu::recurrent", _gradients, setup_context=_keep)


def _layers(
    kind: str, data: Tensor, states: Any, weights: Sequence[Tensor], biases: bool, layers: int,
    dropout: float, train: bool, two_ways: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Torch's recurrent layers, with its arguments, each as the one operator."""
    hidden = data.transpose(0, 1) if batch_first else data
    given = [each.chunk(layers) for each in (states if kind == "lstm" else [states])]
    size = len(weights) // layers
    lasts: list[Sequence[Tensor]] = []
    for k in range(layers):
        own = weights[k * size : (k + 1) * size]
        first = [each[k] for each in given]
        hidden, *last = torch.ops.tofu.recurrent(hidden, first, own, kind, biases, two_ways)
        lasts.append(last)
        if dropout and train and k + 1 < layers:
            hidden = torch.dropout(hidden, dropout, True)
    made = [torch.cat(each) if layers > 1 else each[0] for each in zip(*lasts)]
    return (hidden.transpose(0, 1) if batch_first else hidden, *made)


# torch's operators of layers -> the functions that make each layer one operator.
LAYERS: Mapping[str, Callable[..., Any]] = {
    f"{kind}.input": functools.partial(_layers, kind) for kind in _KINDS
}


def may_gain_apart(traced: Traced, ranks: int) -> bool:
    """Whether a plan of the layers' timesteps may send less than one with each layer whole.

    Over k ranks that share the sequences, w weights are sent 2 (k - 1) times, or 3 if they are cut.
    In timesteps, b ranks can share a layer's features, and a = k / b the sequences. The weights are
    then sent 2 (a - 1) times and the s elements of all states 2 (b - 1) times, which is less only
    if s < a w, or, with weights that are cut, if 2 s < 3 w.
    """
    shapes = {Entry(each.name): each.meta.shape for each in traced.variables}
    for operator in traced.operators:
        shapes.update((Entry(operator.name, k), x.shape) for k, x in enumerate(operator.outputs))

    def may_gain(layer: Operator) -> bool:
        states = layer.outputs[0].shape
        weights = sum(
            math.prod(shapes[entry]) for name, entry in layer.inputs if name.startswith("weights")
        )
        return bool(states[1] < ranks or 2 * math.prod(states) < max(3, ranks) * weights)

    return any(map(may_gain, traced.layers))
