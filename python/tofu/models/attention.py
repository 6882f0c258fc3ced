"""Multi-head attention and the layers built on it."""

from __future__ import annotations

from typing import Any, Optional

from mxnet.gluon import nn

__all__ = ["MASKED", "Attention", "FeedForward", "Residual", "causal_bias"]

# Added to masked scores: the softmax turns them into zeros.
MASKED = -1e9


class Attention(nn.HybridBlock):  # type: ignore[misc]
    """Scaled dot-product attention with several heads.

    Args:
        units: width of the layer.
        heads: number of heads, a divisor of units.
        dropout: fraction of the attention weights to drop.
    """

    def __init__(self, units: int, heads: int, *, dropout: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._heads = heads
        self._scale = (units // heads) ** -0.5
        with self.name_scope():
            self.query = nn.Dense(units, flatten=False, in_units=units)
            self.key = nn.Dense(units, flatten=False, in_units=units)
            self.value = nn.Dense(units, flatten=False, in_units=units)
            self.project = nn.Dense(units, flatten=False, in_units=units)
            self.dropout = nn.Dropout(dropout)

    def hybrid_forward(self, F: Any, x: Any, memory: Any, bias: Any) -> Any:
        """Let each position of `x` attend to those of `memory`.

        Args:
            F: the module of operators.
            x: `(batch, positions, units)`.
            memory: `(batch, sources, units)`.
            bias: added to the scores; broadcasts to `(batch, heads, positions, sources)`.
        """
        query = self._split(F, self.query(x) * self._scale)
        scores = F.batch_dot(query, self._split(F, self.key(memory)), transpose_b=True)
        scores = F.broadcast_add(F.reshape(scores, (-4, -1, self._heads, 0, 0)), bias)
        weights = F.reshape(self.dropout(F.softmax(scores)), (-3, 0, 0))
        mixed = F.batch_dot(weights, self._split(F, self.value(memory)))
        heads = F.reshape(mixed, (-4, -1, self._heads, 0, 0))
        return self.project(F.reshape(F.transpose(heads, (0, 2, 1, 3)), (0, 0, -3)))

    def _split(self, F: Any, x: Any) -> Any:
        """Map `(batch, positions, units)` to `(batch * heads, positions, units / heads)`."""
        heads = F.reshape(x, (0, 0, -4, self._heads, -1))
        return F.reshape(F.transpose(heads, (0, 2, 1, 3)), (-3, 0, 0))


class FeedForward(nn.HybridBlock):  # type: ignore[misc]
    """Two fully connected layers, applied at each position.

    Args:
        units: width of input and output.
        hidden: width between the two layers.
        activation: the name of a Gluon activation, or "gelu".
    """

    def __init__(self, units: int, hidden: int, *, activation: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.expand = nn.Dense(hidden, flatten=False, in_units=units)
            self.activate = nn.GELU() if activation == "gelu" else nn.Activation(activation)
            self.contract = nn.Dense(units, flatten=False, in_units=hidden)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Map `(batch, positions, units)` to the same shape."""
        return self.contract(self.activate(self.expand(x)))


class Residual(nn.HybridBlock):  # type: ignore[misc]
    """A layer with dropout, a shortcut around it and a LayerNorm.

    Args:
        layer: maps its first argument to the same shape.
        units: size of the last dimension.
        dropout: fraction of the layer's output to drop.
        norm_first: whether the LayerNorm comes before the layer or after the sum.
    """

    def __init__(
        self,
        layer: nn.HybridBlock,
        units: int,
        *,
        dropout: float,
        norm_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._norm_first = norm_first
        with self.name_scope():
            self.layer = layer
            self.norm = nn.LayerNorm(in_channels=units)
            self.dropout = nn.Dropout(dropout)

    def hybrid_forward(
        self, F: Any, x: Any, memory: Optional[Any] = None, bias: Optional[Any] = None
    ) -> Any:
        """Apply the layer to `x`; an Attention also gets `memory` (None: `x`) and `bias`."""
        source = self.norm(x) if self._norm_first else x
        if bias is None:
            result = self.layer(source)
        else:
            result = self.layer(source, source if memory is None else memory, bias)
        result = x + self.dropout(result)
        return result if self._norm_first else self.norm(result)


def causal_bias(F: Any, positions: int) -> Any:
    """The bias `(1, 1, positions, positions)` that hides later positions."""
    steps = F.arange(positions)
    later = F.broadcast_lesser(F.reshape(steps, (1, 1, -1, 1)), F.reshape(steps, (1, 1, 1, -1)))
    return later * MASKED
