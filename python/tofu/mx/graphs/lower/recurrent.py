"""The fused recurrent operator, unrolled like Gluon's own cells."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Optional

from tofu.mx.nnvm import Entry, Node

from .registry import BEFORE, Builder, flag, number

__all__: list[str] = []

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
_REFUSED = ("lstm_state_clip_min", "lstm_state_clip_max")
_AXIS_TIME, _AXIS_CHANNEL = 0, 2


@dataclasses.dataclass(frozen=True)
class _Layer:
    """One direction of one layer: matrices of shape (gates * hidden, inputs), and biases.

    With a projection, an LSTM's state is multiplied by the projection matrix.
    """

    mode: str
    hidden: int
    projected: Optional[int]
    to_hidden: Entry
    recurrent: Entry
    to_hidden_bias: Entry
    recurrent_bias: Entry
    projection: Optional[Entry]

    @property
    def width(self) -> int:
        """The size of all gates."""
        return _GATES[self.mode] * self.hidden


@BEFORE.lowering(
    "RNN", reason="its backward operator needs what the forward operator kept to itself"
)
def rnn(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The operator step by step; with clipped states or sequence lengths it is not lowered."""
    if any(node.attrs.get(name, "None") != "None" for name in _REFUSED):
        return None
    if flag(node, "use_sequence_length"):
        return None
    data, parameters, *states = node.inputs
    mode, hidden = node.attrs["mode"], int(node.attrs["state_size"])
    directions = 2 if flag(node, "bidirectional") else 1
    layers = int(node.attrs["num_layers"])
    length, _, inputs = data.shape
    projected = node.attrs.get("projection_size", "None")
    sizes = _Sizes(
        mode, hidden, None if projected == "None" else int(projected), layers, directions, inputs
    )
    weights = _unpacked(parameters, build, sizes)
    drop = number(node, "p", 0.0) if build.train else 0.0
    first = [_split(build, state, layers * directions) for state in states]
    last: list[list[Entry]] = []
    for number_of_layer in range(layers):
        if number_of_layer and drop:
            data = build.op("Dropout", data, p=drop, cudnn_off=True)
        ways = []
        for way in range(directions):
            at = number_of_layer * directions + way
            start = [state[at] for state in first]
            label = f"layer{at}"
            outputs, end = _run(build, weights[at], data, start, length, label, backwards=way == 1)
            ways.append(_stacked(build, outputs))
            last.append(end)
        data = ways[0]
        if directions == 2:
            data = build.op("Concat", *ways, dim=_AXIS_CHANNEL, num_args=2)
    if not flag(node, "state_outputs"):
        return [data]
    return [data, *(_stacked(build, list(ends)) for ends in zip(*last))]


def _run(
    build: Builder,
    layer: _Layer,
    data: Entry,
    state: list[Entry],
    length: int,
    label: str,
    *,
    backwards: bool,
) -> tuple[list[Entry], list[Entry]]:
    """The outputs of all steps in the data's order, and the state after the last step."""
    with build.stage(f"{label}_inputs"):
        gates = build.op(
            "FullyConnected",
            *(data, layer.to_hidden, layer.to_hidden_bias),
            num_hidden=layer.width,
            flatten=False,
        )
        steps = _split(build, gates, length)
    outputs: list[Entry] = []
    for number_of_step in reversed(range(length)) if backwards else range(length):
        with build.stage(f"{label}_step{number_of_step}"):
            state = _step(build, layer, steps[number_of_step], state)
        outputs.append(state[0])
    return outputs[::-1] if backwards else outputs, state


def _step(build: Builder, layer: _Layer, inputs: Entry, state: list[Entry]) -> list[Entry]:
    """The state after one step, whose first tensor is the step's output."""
    recurrent = build.op(
        "FullyConnected",
        *(state[0], layer.recurrent, layer.recurrent_bias),
        num_hidden=layer.width,
    )
    state = _STEPS[layer.mode](build, inputs, recurrent, state)
    if layer.projection is not None:
        attrs = {"num_hidden": layer.projected, "no_bias": True}
        state[0] = build.op("FullyConnected", state[0], layer.projection, **attrs)
    return state


def _tanh_step(build: Builder, step: Entry, recurrent: Entry, _: list[Entry]) -> list[Entry]:
    return [build.op("tanh", build.op("elemwise_add", step, recurrent))]


def _relu_step(build: Builder, step: Entry, recurrent: Entry, _: list[Entry]) -> list[Entry]:
    return [build.op("relu", build.op("elemwise_add", step, recurrent))]


def _lstm_step(build: Builder, step: Entry, recurrent: Entry, state: list[Entry]) -> list[Entry]:
    gates = _gates(build, build.op("elemwise_add", step, recurrent), 4)
    input_gate, forget_gate, output_gate = (build.op("sigmoid", gates[k]) for k in (0, 1, 3))
    new = build.op("elemwise_mul", input_gate, build.op("tanh", gates[2]))
    memory = build.op("elemwise_add", build.op("elemwise_mul", forget_gate, state[1]), new)
    return [build.op("elemwise_mul", output_gate, build.op("tanh", memory)), memory]


def _gru_step(build: Builder, step: Entry, recurrent: Entry, state: list[Entry]) -> list[Entry]:
    inputs, hidden = _gates(build, step, 3), _gates(build, recurrent, 3)
    reset, keep = (
        build.op("sigmoid", build.op("elemwise_add", inputs[k], hidden[k])) for k in (0, 1)
    )
    candidate = build.op("elemwise_mul", reset, hidden[2])
    new = build.op("tanh", build.op("elemwise_add", inputs[2], candidate))
    rest = build.op("elemwise_mul", build.op("_rminus_scalar", keep, scalar=1.0), new)
    return [build.op("elemwise_add", rest, build.op("elemwise_mul", keep, state[0]))]


_STEPS = {"rnn_tanh": _tanh_step, "rnn_relu": _relu_step, "lstm": _lstm_step, "gru": _gru_step}


def _gates(build: Builder, entry: Entry, count: int) -> list[Entry]:
    return _outputs(build.op("SliceChannel", entry, num_outputs=count, axis=1), count)


def _split(build: Builder, entry: Entry, count: int) -> list[Entry]:
    """The slices along the first dimension."""
    attrs = {"num_outputs": count, "axis": _AXIS_TIME, "squeeze_axis": True}
    return _outputs(build.op("SliceChannel", entry, **attrs), count)


def _outputs(entry: Entry, count: int) -> list[Entry]:
    entry.node.num_outputs = count
    return [Entry(entry.node, k) for k in range(count)]


def _stacked(build: Builder, entries: list[Entry]) -> Entry:
    return build.op("stack", *entries, axis=_AXIS_TIME, num_args=len(entries))


@dataclasses.dataclass(frozen=True)
class _Sizes:
    """The sizes that determine the shapes of all parameters."""

    mode: str
    hidden: int
    projected: Optional[int]
    layers: int
    directions: int
    inputs: int

    def matrices(self) -> list[tuple[int, int]]:
        """Shapes per direction per layer: matrices of the inputs, of the state, a projection."""
        rows, state = _GATES[self.mode] * self.hidden, self.projected or self.hidden
        projection = [] if self.projected is None else [(self.projected, self.hidden)]
        shapes: list[tuple[int, int]] = []
        for k in range(self.layers * self.directions):
            width = self.inputs if k < self.directions else state * self.directions
            shapes += [(rows, width), (rows, state), *projection]
        return shapes

    def biases(self) -> list[tuple[int]]:
        """Shapes per direction per layer: biases of the inputs and of the state."""
        rows = _GATES[self.mode] * self.hidden
        return [(rows,)] * (2 * self.layers * self.directions)


def _unpacked(parameters: Entry, build: Builder, sizes: _Sizes) -> list[_Layer]:
    """The layers' parameters: all matrices come first, then all biases."""
    matrices, biases = sizes.matrices(), sizes.biases()
    pieces = list(_pieces(parameters, build, [*matrices, *biases]))
    vectors, per_layer = pieces[len(matrices) :], len(matrices) * 2 // len(biases)
    layers = []
    for k in range(len(biases) // 2):
        to_hidden, recurrent, *projection = pieces[k * per_layer : (k + 1) * per_layer]
        layers.append(
            _Layer(
                mode=sizes.mode,
                hidden=sizes.hidden,
                projected=sizes.projected,
                to_hidden=to_hidden,
                recurrent=recurrent,
                to_hidden_bias=vectors[2 * k],
                recurrent_bias=vectors[2 * k + 1],
                projection=projection[0] if projection else None,
            )
        )
    return layers


def _pieces(
    parameters: Entry, build: Builder, shapes: Sequence[tuple[int, ...]]
) -> Iterator[Entry]:
    """Cut the vector into these shapes, or yield the tensors that it was concatenated from."""
    joined = parameters.node
    if joined.op in ("_rnn_param_concat", "Concat") and len(joined.inputs) == len(shapes):
        whole = [_before_reshape(entry) for entry in joined.inputs]
        if [entry.shape for entry in whole] == list(shapes):
            yield from whole
            return
    begin = 0
    for shape in shapes:
        end = begin + math.prod(shape)
        piece = build.op("slice_axis", parameters, axis=0, begin=begin, end=end)
        yield build.reshape(piece, shape) if len(shape) > 1 else piece
        begin = end


def _before_reshape(entry: Entry) -> Entry:
    return entry.node.inputs[0] if entry.node.op == "Reshape" else entry
