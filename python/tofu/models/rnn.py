"""Stacks of LSTM layers over a sequence of fixed length (paper section 7.1)."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import nn, rnn

__all__ = ["LstmStack"]


class LstmStack(nn.HybridBlock):  # type: ignore[misc]
    """LSTM layers unrolled over the steps of a sequence, and a classifier at every step.

    Args:
        layers: number of LSTM layers.
        hidden: units of each layer.
        steps: length of the sequence.
        classes: number of classes at each step.
    """

    def __init__(
        self, *, layers: int, hidden: int, steps: int, classes: int, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._steps = steps
        with self.name_scope():
            self.stack = rnn.HybridSequentialRNNCell()
            for _ in range(layers):
                self.stack.add(rnn.LSTMCell(hidden))
            self.output = nn.Dense(classes, flatten=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Map a sequence `(batch, steps, features)` to scores `(batch, steps, classes)`."""
        outputs, _ = self.stack.unroll(self._steps, x, layout="NTC", merge_outputs=True)
        return self.output(outputs)
