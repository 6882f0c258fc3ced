"""The fused recurrent operator: sequences of a batch are independent of each other.

Data have shape (time, batch, input), states (layers * directions, batch, hidden). Parameters
are one vector with all layers' matrices, so no part of the vector belongs to a part of a state.
"""

from __future__ import annotations

from tofu.errors import InconclusiveError
from tofu.lang import op
from tofu.tdl._shapes import instances


def _outputs(mode, state_outputs):
    if not state_outputs:
        return ".n."
    return ".n. .n. .n." if mode == "lstm" else ".n. .n."


def _reads(tensors, lengths):
    """States and data per batch element, parameters whole, and the lengths."""
    count = len(tensors) - lengths
    words = ["" if k == 1 else ".n" if k < count else "n" for k in range(len(tensors))]
    return list(zip(tensors, words))


def _check(p):
    if p:
        raise InconclusiveError(f"RNN with dropout {p}: its masks are not an output")


@op(name="RNN", stateful=True)
def rnn(*args, mode, state_outputs=False, use_sequence_length=False, p=0):
    """Outputs of every step, and the last states."""
    _check(p)
    return instances(_outputs(mode, state_outputs), *_reads(args, use_sequence_length))


@op(name="_backward_RNN")
def backward_rnn(*args, mode, use_sequence_length=False, p=0):
    """The gradients of data, parameters (a sum over the batch) and states."""
    _check(p)
    if use_sequence_length:
        raise InconclusiveError("the gradient of RNN with lengths is not described")
    return instances(".n. . " + ".n. " * (2 if mode == "lstm" else 1), *_reads(args, 0))
