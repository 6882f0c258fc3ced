"""Wide ResNets (paper section 7.1): residual networks of bottlenecks, every layer widened."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import nn

__all__ = ["WResNet"]

STEM_CHANNELS = 64
EXPANSION = 4


class Bottleneck(nn.HybridBlock):  # type: ignore[misc]
    """Convolutions of 1x1, 3x3 and 1x1 around a shortcut.

    Args:
        channels: channels of the two inner layers; the output has four times as many.
        stride: stride of the first convolution.
        project: whether the shortcut is a convolution, needed if the shape changes.
    """

    def __init__(self, channels: int, *, stride: int, project: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(
                *_convolution(channels, 1, stride),
                nn.Activation("relu"),
                *_convolution(channels, 3),
                nn.Activation("relu"),
                *_convolution(channels * EXPANSION, 1),
            )
            self.shortcut = nn.HybridSequential()
            if project:
                self.shortcut.add(*_convolution(channels * EXPANSION, 1, stride))

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Add the body's output to the shortcut's."""
        return F.relu(self.body(x) + self.shortcut(x))


class WResNet(nn.HybridBlock):  # type: ignore[misc]
    """A residual network with `width` times as many channels, in the first layer too.

    Args:
        blocks: bottlenecks of each stage.
        width: the widening scalar.
        classes: number of classes.
    """

    def __init__(
        self, *, blocks: tuple[int, ...], width: int, classes: int = 1000, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                *_convolution(STEM_CHANNELS * width, 7, 2),
                nn.Activation("relu"),
                nn.MaxPool2D(3, 2, 1),
            )
            for stage, count in enumerate(blocks):
                channels = STEM_CHANNELS * width * 2**stage
                for i in range(count):
                    stride = 2 if stage > 0 and i == 0 else 1
                    self.features.add(Bottleneck(channels, stride=stride, project=i == 0))
            self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Map images `(batch, 3, height, width)` to scores `(batch, classes)`."""
        return self.output(self.features(x))


def _convolution(channels: int, kernel: int, stride: int = 1) -> tuple[Any, Any]:
    """A convolution that keeps the size except for its stride, and its BatchNorm."""
    convolution = nn.Conv2D(channels, kernel, stride, kernel // 2, use_bias=False)
    return convolution, nn.BatchNorm()
