"""Builds a Gluon block from a Spec, with weights that depend only on the Spec."""

from __future__ import annotations

import zlib
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.gluon import nn

from tofu.gluon.session.session import active

from . import flat, images, sequences  # noqa: F401 - they register their kinds
from .kinds import KINDS
from .sequences import Fused
from .spec import Spec


class Net(nn.HybridBlock):
    """The layers of a Spec, each applied to the values that it names."""

    def __init__(self, spec: Spec) -> None:
        super().__init__(prefix="net_")
        self._spec = spec
        self._layers = []
        with self.name_scope():
            for number, node in enumerate(spec.nodes):
                if node.shares is None:
                    layer = KINDS[node.kind].make(**node.options)
                    setattr(self, f"{node.kind}{number}", layer)
                else:
                    layer = self._layers[node.shares]
                self._layers.append(layer)

    def hybrid_forward(self, F, *inputs):
        values = list(inputs)
        for node, layer in zip(self._spec.nodes, self._layers):
            values.append(layer(*(values[i] for i in node.inputs)))
        found = [values[i] for i in self._spec.outputs]
        return found if len(found) > 1 else found[0]

    def freeze(self) -> None:
        """Stop training the parameters that the Spec freezes."""
        for node, layer in zip(self._spec.nodes, self._layers):
            if not node.frozen:
                continue
            for name, parameter in layer._collect_params_with_prefix().items():
                if node.frozen == "all" or name.endswith(node.frozen):
                    parameter.grad_req = "null"


class Drawn(mx.init.Initializer):
    """Numbers that follow from a parameter's name, equal in every dtype."""

    def __init__(self, name: str, seed: int, trained: bool, noise: int) -> None:
        super().__init__()
        self._name = name
        # BatchNorm(scale=False) has a gamma that it treats as ones, and overwrites.
        self._trained = trained
        self._seed = zlib.crc32(f"{seed} {name}".encode())
        self._noise = noise

    def _init_weight(self, _, arr):
        drawn = np.random.RandomState(self._seed).normal(size=arr.shape)
        last = self._name.rpartition(".")[2].rpartition("_")
        if last[2] == "gamma":
            drawn = 1 + 0.2 * drawn * self._trained
        elif last[2] == "var":
            drawn = 0.5 + np.abs(drawn)
        elif last[2] in ("beta", "bias", "mean", "alpha"):
            drawn = 0.2 * drawn
        else:
            drawn = drawn * np.prod(arr.shape[1:]) ** -0.5
        arr[:] = disturbed(drawn, arr.dtype, self._noise, self._seed)


def disturbed(values: np.ndarray, dtype: Any, noise: int, seed: int) -> np.ndarray:
    """Numbers of single precision, each changed by one rounding of `dtype` if there is noise."""
    single = values.astype(np.float32).astype(dtype)
    if not noise:
        return single
    signs = np.random.RandomState((seed, noise)).choice((-1, 1), values.shape)
    return np.nextafter(single, single + signs.astype(dtype))


def build(spec: Spec, dtype: str, noise: int = 0) -> Net:
    """The net, initialized and hybridized; noise changes its weights by one rounding."""
    net = Net(spec)
    if dtype == "float64" and active() is None:
        net.apply(lambda block: block.unfuse() if isinstance(block, Fused) else None)
    for name, parameter in net._collect_params_with_prefix().items():
        parameter.init = Drawn(name, spec.seed, parameter.grad_req != "null", noise)
    net.freeze()
    net.cast(dtype)
    net.initialize()
    net.hybridize(**spec.hybridize)
    return net
