"""A model as scripts write it: a net and a loss, each a block of its own."""

from __future__ import annotations

import mxnet as mx
from mxnet import gluon

from tofu.models import ModelGraph, create_block
from tofu.models.named_models import LABEL, find

__all__ = ["SCORES", "blocks_of"]

SCORES = "scores"  # the tensor that goes from the net to the loss
_DTYPE = "float32"


def blocks_of(name: str, batch: int, *, reduced: bool = False) -> tuple[ModelGraph, ModelGraph]:
    """The net, whose output is scores, and the loss, whose inputs are scores and label."""
    model = find(name)
    size = model.reduced if reduced else model.full
    inputs = {key: ((batch, *shape), _DTYPE) for key, shape in size.inputs.items() if key != LABEL}
    symbol = create_block(model, reduced=reduced)(*map(mx.sym.var, inputs))
    shapes, (scores,), _ = symbol.infer_shape(**{key: shape for key, (shape, _) in inputs.items()})
    parameters = {
        key: (tuple(shape), _DTYPE)
        for key, shape in zip(symbol.list_arguments(), shapes)
        if key not in inputs
    }
    loss = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")
    loss_inputs = {
        SCORES: (tuple(scores), _DTYPE),
        LABEL: ((batch, *size.inputs[LABEL]), _DTYPE),
    }
    return (
        ModelGraph(model.name, symbol, inputs, parameters, {}),
        ModelGraph("loss", loss(mx.sym.var(SCORES), mx.sym.var(LABEL)), loss_inputs, {}, {}),
    )
