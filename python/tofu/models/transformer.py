"""Transformers: an encoder-decoder, and a decoder alone like GPT."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import nn

from .attention import MASKED, Attention, FeedForward, Residual, causal_bias

__all__ = ["Gpt", "Transformer"]


class Transformer(nn.HybridBlock):  # type: ignore[misc]
    """The encoder-decoder of Vaswani et al., with learned positions.

    Every layer of the encoder and of the decoder uses one mask of the source.

    Args:
        layers: number of layers of the encoder, and of the decoder.
        units: width.
        heads: attention heads of each layer.
        hidden: width inside the feed-forward layers.
        vocabulary: number of tokens, of source and target.
        positions: length of both sequences.
        dropout: fraction dropped of attention weights and of each layer's output.
    """

    def __init__(
        self,
        *,
        layers: int,
        units: int,
        heads: int,
        hidden: int,
        vocabulary: int,
        positions: int,
        dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._positions = positions
        with self.name_scope():
            self.embed_source = _Embedding(vocabulary, positions, units)
            self.embed_target = _Embedding(vocabulary, positions, units)
            for i in range(layers):
                for layer in (f"encode{i}", f"decode{i}", f"cross{i}"):
                    attention = Attention(units, heads, dropout=dropout)
                    setattr(self, layer, Residual(attention, units, dropout=dropout))
                for layer in (f"encode_ffn{i}", f"decode_ffn{i}"):
                    feed_forward = FeedForward(units, hidden, activation="relu")
                    setattr(self, layer, Residual(feed_forward, units, dropout=dropout))
            self.output = nn.Dense(vocabulary, flatten=False, in_units=units)
        self._encoder = [(f"encode{i}", f"encode_ffn{i}") for i in range(layers)]
        self._decoder = [(f"decode{i}", f"cross{i}", f"decode_ffn{i}") for i in range(layers)]

    def hybrid_forward(self, F: Any, source: Any, mask: Any, target: Any) -> Any:
        """Score the next token at each position of the target.

        Args:
            F: the module of operators.
            source: tokens `(batch, positions)`.
            mask: 1 where `source` is a token, 0 where it is padding.
            target: tokens `(batch, positions)`.

        Returns:
            Scores `(batch, positions, vocabulary)`.
        """
        hide_padding = F.reshape((1 - mask) * MASKED, (0, 1, 1, -1))
        hide_later = causal_bias(F, self._positions)
        memory = self.embed_source(source)
        for attend, feed_forward in self._encoder:
            memory = getattr(self, attend)(memory, None, hide_padding)
            memory = getattr(self, feed_forward)(memory)
        x = self.embed_target(target)
        for attend, cross, feed_forward in self._decoder:
            x = getattr(self, attend)(x, None, hide_later)
            x = getattr(self, cross)(x, memory, hide_padding)
            x = getattr(self, feed_forward)(x)
        return self.output(x)


class Gpt(nn.HybridBlock):  # type: ignore[misc]
    """A decoder whose layers see only earlier positions, with normalization first.

    Args:
        layers: number of layers.
        units: width.
        heads: attention heads of each layer.
        vocabulary: number of tokens.
        positions: length of the sequence.
        dropout: fraction dropped of attention weights and of each layer's output.
    """

    def __init__(
        self,
        *,
        layers: int,
        units: int,
        heads: int,
        vocabulary: int,
        positions: int,
        dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._positions = positions
        self._layers = [(f"attend{i}", f"ffn{i}") for i in range(layers)]
        with self.name_scope():
            self.embed = _Embedding(vocabulary, positions, units)
            for attend, feed_forward in self._layers:
                for name, layer in (
                    (attend, Attention(units, heads, dropout=dropout)),
                    (feed_forward, FeedForward(units, 4 * units, activation="gelu")),
                ):
                    setattr(self, name, Residual(layer, units, dropout=dropout, norm_first=True))
            self.norm = nn.LayerNorm(in_channels=units)
            self.output = nn.Dense(vocabulary, flatten=False, use_bias=False, in_units=units)

    def hybrid_forward(self, F: Any, tokens: Any) -> Any:
        """Map tokens `(batch, positions)` to scores `(batch, positions, vocabulary)`."""
        hide_later = causal_bias(F, self._positions)
        x = self.embed(tokens)
        for attend, feed_forward in self._layers:
            x = getattr(self, attend)(x, None, hide_later)
            x = getattr(self, feed_forward)(x)
        return self.output(self.norm(x))


class _Embedding(nn.HybridBlock):  # type: ignore[misc]
    """The sum of a token's vector and its position's vector."""

    def __init__(self, vocabulary: int, positions: int, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.token = nn.Embedding(vocabulary, units)
            self.position = self.params.get("position", shape=(1, positions, units))

    def hybrid_forward(self, F: Any, tokens: Any, position: Any) -> Any:
        return F.broadcast_add(self.token(tokens), position)
