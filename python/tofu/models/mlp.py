"""Multi-layer perceptrons, such as those in SoyBean's evaluation."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import nn

__all__ = ["Mlp"]


class Mlp(nn.HybridBlock):  # type: ignore[misc]
    """Fully connected layers of one width, with ReLUs between them.

    Args:
        layers: number of hidden layers.
        hidden: units of each.
        classes: number of classes.
    """

    def __init__(self, *, layers: int, hidden: int, classes: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            for _ in range(layers):
                self.features.add(nn.Dense(hidden, activation="relu"))
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Map features `(batch, features)` to scores `(batch, classes)`."""
        return self.output(self.features(x))
