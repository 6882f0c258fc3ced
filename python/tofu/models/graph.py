"""A model's symbol with its training loss, and the shape of every variable."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Collection, Mapping
from typing import Any, Callable, Optional, Union

import mxnet as mx
from mxnet import gluon

from tofu import _core
from tofu.errors import ConfigError

from .named_models import LABEL, Model, Shape, find

__all__ = ["ModelGraph", "build", "create_block"]

_DTYPE = "float32"
Variables = Mapping[str, tuple[Shape, str]]


@dataclasses.dataclass(frozen=True)
class ModelGraph:
    """A model in the form that tofu.mx.graphs.training_graph needs.

    Attributes:
        name: the model's name.
        symbol: the forward graph; its output is the loss of each example.
        inputs: name to shape and data type, the label included.
        parameters: name to shape and data type of the weights.
        aux: name to shape and data type of auxiliary states, such as running statistics.
    """

    name: str
    symbol: mx.sym.Symbol
    inputs: Variables
    parameters: Variables
    aux: Variables

    def training_graph(
        self,
        *,
        optimizer: Optional[str] = "sgd",
        on_gpus: bool = False,
        fused: Optional[Collection[str]] = (),
    ) -> _core.Graph:
        """The graph of forward, backward and update; see tofu.mx.graphs.training_graph."""
        return self.training_graphs(optimizer=optimizer, on_gpus=on_gpus)(fused)

    def training_graphs(
        self, *, optimizer: Optional[str] = "sgd", on_gpus: bool = False
    ) -> Callable[[Optional[Collection[str]]], _core.Graph]:
        """A function that builds the training graph, given the BatchNorms that stay whole."""
        from tofu.mx.devices import GraphUse
        from tofu.mx.graphs.training_graph import training_graphs

        return training_graphs(
            self.symbol,
            inputs=self.inputs,
            parameters=self.parameters,
            aux=self.aux,
            gradients=tuple(self.parameters),
            use=GraphUse(train=True, on_gpus=on_gpus),
            optimizer=optimizer,
        )


def build(
    name: Union[str, Model], batch_size: Optional[int] = None, *, reduced: bool = False
) -> ModelGraph:
    """Build a model and infer its shapes, without allocating its tensors.

    Args:
        name: a name of tofu.models.MODELS, or a model.
        batch_size: number of examples; None for the model's own.
        reduced: whether to build the small version of the same structure.

    Raises:
        ConfigError: there is no such model, or the batch size is not positive.
    """
    model = find(name) if isinstance(name, str) else name
    batch_size = model.batch_size if batch_size is None else batch_size
    if batch_size < 1:
        raise ConfigError(f"model {model.name}: batch size {batch_size}, expected at least 1")
    size = model.reduced if reduced else model.full
    shapes = {key: (batch_size, *shape) for key, shape in size.inputs.items()}
    return _trace(model.name, create_block(model, reduced=reduced), shapes)


def create_block(model: Model, *, reduced: bool = False) -> gluon.HybridBlock:
    """Create a model's Gluon block, not initialized.

    The names of its layers and parameters do not depend on earlier blocks.
    """
    module, _, factory = model.factory.partition(":")
    create = getattr(importlib.import_module(f".{module}", __package__), factory)
    options = (model.reduced if reduced else model.full).options
    return create(prefix=f"{model.name.partition('-')[0]}_", **options)


def _trace(name: str, block: Any, shapes: Mapping[str, Shape]) -> ModelGraph:
    variables = {key: mx.sym.var(key) for key in shapes}
    output = block(*(variables[key] for key in shapes if key != LABEL))
    symbol = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")(output, variables[LABEL])
    inferred, _, aux = symbol.infer_shape(**shapes)
    arguments = dict(zip(symbol.list_arguments(), inferred))
    return ModelGraph(
        name=name,
        symbol=symbol,
        inputs={key: (shape, _DTYPE) for key, shape in shapes.items()},
        parameters={
            key: (tuple(shape), _DTYPE) for key, shape in arguments.items() if key not in shapes
        },
        aux={
            key: (tuple(shape), _DTYPE) for key, shape in zip(symbol.list_auxiliary_states(), aux)
        },
    )
