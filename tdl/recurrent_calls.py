"""Example calls of the fused recurrent operator."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, case, real

__all__ = ["CASES"]

_GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}


def _weights(mode: str, size: int, hidden: int, layers: int, directions: int) -> In:
    """The packed parameters: matrices of every layer and direction, then two biases each."""
    rows, count = _GATES[mode] * hidden, 0
    for layer in range(layers):
        width = hidden * directions if layer else size
        count += directions * rows * (width + hidden + 2)
    return real(count)


def _recurrent() -> list[Case]:
    cases = []
    for mode, layers, directions in (
        ("rnn_tanh", 1, 1),
        ("gru", 2, 1),
        ("lstm", 1, 2),
        ("lstm", 2, 1),
    ):
        attrs = {"mode": mode, "state_size": "3", "num_layers": str(layers)}
        attrs.update(bidirectional=str(directions == 2), state_outputs="True")
        states = [real(layers * directions, 6, 3)] * (2 if mode == "lstm" else 1)
        inputs = real(4, 6, 2), _weights(mode, 2, 3, layers, directions), *states
        more = {"attrs": attrs, "outputs": 1 + len(states), "expect": "n", "dtype": "float32"}
        cases.append(case("RNN", *inputs, **more))
        reads = "i0 i1 i2 o0 g0 o1 g1" + (" i3 o2 g2" if mode == "lstm" else "")
        cases.append(back("_backward_RNN", reads, *inputs, live=True, **more))
    attrs = {"mode": "lstm", "state_size": "3", "num_layers": "1"}
    inputs = real(4, 6, 2), _weights("lstm", 2, 3, 1, 1), real(1, 6, 3), real(1, 6, 3)
    more = {"attrs": attrs, "expect": "n", "dtype": "float32"}
    cases.append(case("RNN", *inputs, **more))
    cases.append(back("_backward_RNN", "i0 i1 i2 o0 g0 i3", *inputs, live=True, **more))
    return cases


CASES = _recurrent()
