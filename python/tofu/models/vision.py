"""Convolutional networks of Gluon's model zoo, with sizes that can be reduced."""

from __future__ import annotations

from typing import Any

from mxnet.gluon import nn
from mxnet.gluon.model_zoo import vision

__all__ = ["alexnet", "densenet", "vgg"]


def alexnet(**kwargs: Any) -> nn.HybridBlock:
    """Return AlexNet (in its one-tower form)."""
    return vision.AlexNet(**kwargs)


def vgg(*, layers: tuple[int, ...], filters: tuple[int, ...], **kwargs: Any) -> nn.HybridBlock:
    """Return a VGG of `layers` convolutions with `filters` channels in each stage."""
    return vision.VGG(list(layers), list(filters), **kwargs)


def densenet(*, blocks: tuple[int, ...], growth: int = 32, **kwargs: Any) -> nn.HybridBlock:
    """Return a DenseNet of `blocks` layers in each stage, each adding `growth` channels."""
    return vision.DenseNet(2 * growth, growth, list(blocks), **kwargs)
