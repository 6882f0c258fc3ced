"""SoftmaxOutput, which defines its own gradient: in stages over the classes where needed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Optional

import numpy as np

from tofu.dtypes import dtype_name
from tofu.mx.nnvm import Entry, Node, Shape

from .registry import AFTER, Builder, flag, number
from .staged import indivisible, positions, softmax_parts

__all__: list[str] = []

_FLOAT16 = 2
_REASON = "its gradient counts its own tile's labels, its softmax is over all classes"


@dataclasses.dataclass(frozen=True)
class _Form:
    """The shapes that the operator's attributes define.

    Attributes:
        lines: the data's shape for a softmax along `axis`.
        axis: the axis of the classes.
        labels: the label's shape to go with `lines`, with 1 along `axis`.
        dense: whether the label has a probability for every class; then labels are not counted.
        places: the number of positions per sample, by which the scale is divided.
        batch: the divisor of normalization "batch".
    """

    lines: Shape
    axis: int
    dense: bool
    places: int
    batch: int

    @property
    def labels(self) -> Shape:
        return tuple(1 if d == self.axis else size for d, size in enumerate(self.lines))


def _form(node: Node, data: Entry, label: Entry) -> _Form:
    shape, dense = data.shape, data.shape == label.shape
    if flag(node, "multi_output"):
        return _Form(shape, 1, dense, math.prod(shape[2:]), shape[0])
    count = math.prod(label.shape)
    if flag(node, "preserve_shape"):
        return _Form(shape, len(shape) - 1, dense, 1, count)
    return _Form((shape[0], math.prod(shape[1:])), 1, dense, 1, count)


@AFTER.lowering("SoftmaxOutput", reason=_REASON, where=indivisible)
def softmax_output(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The softmax in stages, which need not be differentiable: no gradient flows through it."""
    data, label = node.inputs
    form = _form(node, data, label)
    one_label_a_line = form.dense or math.prod(label.shape) == math.prod(form.labels)
    if data.dtype == _FLOAT16 or flag(node, "out_grad") or not one_label_a_line:
        return None
    lines = data if form.lines == data.shape else build.reshape(data, form.lines)
    shifted, total = softmax_parts(build, lines, form.axis)
    with build.stage("shares"):
        out = build.op("broadcast_div", build.op("exp", shifted), total)
    build.shared[node] = (out,)
    return [out if form.lines == data.shape else build.reshape(out, data.shape)]


@AFTER.lowering("_backward_SoftmaxOutput", reason=_REASON)
def backward_softmax_output(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The softmax minus one at the label, times a scale, if the softmax is in stages.

    Otherwise the operator itself, with a scale for the whole batch. If labels must be
    counted, separate operators count them.
    """
    out, label = node.inputs
    form = _form(node, out, label)
    stages = build.shared.get(out.node)
    if stages is None:
        return _fused(node, build, form)
    node.control_deps[:] = [stages[0].node]  # the forward operator of this one
    with build.stage("difference"):
        gradient = _difference(node, build, form, stages[0], label)
    scale = number(node, "grad_scale", 1.0)
    if not form.dense:
        with build.stage("labels"):
            gradient, scale = _weighed(node, build, form, gradient, label)
    with build.stage("scaled"):
        if scale != 1.0:
            gradient = build.op("_mul_scalar", gradient, scalar=scale)
        if form.lines != out.shape:
            gradient = build.reshape(gradient, out.shape)
    return [gradient, build.zeros(label.shape, dtype_name(label.dtype))]


def _fused(node: Node, build: Builder, form: _Form) -> Optional[Sequence[Entry]]:
    kind = node.attrs.get("normalization", "null")
    scale = number(node, "grad_scale", 1.0)
    if kind == "null":
        return None
    if form.dense:
        node.attrs["normalization"] = "null"
        return None
    if kind == "batch":
        node.attrs.update(normalization="null", grad_scale=repr(scale / form.batch))
        return None
    out, label = node.inputs
    attrs = {**node.attrs, "normalization": "null", "grad_scale": repr(scale * form.places)}
    plain = build.op(node.op, out, label, **attrs).node
    plain.num_outputs = 2
    valid = _kept(node, build, build.reshape(label, (math.prod(label.shape),)))
    count = build.reshape(_count(build, valid, (0,)), (1,) * len(out.shape))
    return [build.op("broadcast_div", Entry(plain), count), Entry(plain, 1)]


def _difference(node: Node, build: Builder, form: _Form, softmax: Entry, label: Entry) -> Entry:
    """The softmax minus the label."""
    if form.dense:
        lines = label if label.shape == form.lines else build.reshape(label, form.lines)
        return build.op("elemwise_sub", softmax, lines)
    number_of = build.op("fix", build.reshape(label, form.labels))  # MXNet drops the fraction
    classes = form.lines[form.axis]
    at = positions(build, classes, form.axis, len(form.lines), dtype_name(label.dtype))
    chosen = build.op("broadcast_equal", number_of, at)
    smooth = number(node, "smooth_alpha", 0.0)
    if smooth == 0 or flag(node, "multi_output"):  # MXNet smooths lines only
        return build.op("elemwise_sub", softmax, chosen)
    others = float(np.float32(smooth / (classes - 1)))
    chosen = build.op("_mul_scalar", chosen, scalar=1.0 - smooth - others)
    return build.op("elemwise_sub", softmax, build.op("_plus_scalar", chosen, scalar=others))


def _weighed(
    node: Node, build: Builder, form: _Form, gradient: Entry, label: Entry
) -> tuple[Entry, float]:
    """The gradient without ignored lines, divided by the number of valid labels, and its scale."""
    scale = number(node, "grad_scale", 1.0)
    kind = node.attrs.get("normalization", "null")
    valid = _kept(node, build, build.reshape(label, form.labels))
    if flag(node, "use_ignore"):
        gradient = build.op("broadcast_mul", gradient, valid)
    if kind == "valid":
        count = _count(build, valid, tuple(range(len(form.lines))))
        return build.op("broadcast_div", gradient, count), scale
    return gradient, scale / form.places / (form.batch if kind == "batch" else 1)


def _kept(node: Node, build: Builder, label: Entry) -> Entry:
    """1 for every label except the ignored one, 0 for that."""
    ignored = float(math.trunc(number(node, "ignore_label", -1.0)))
    return build.op("_not_equal_scalar", build.op("fix", label), scalar=ignored)


def _count(build: Builder, valid: Entry, axes: tuple[int, ...]) -> Entry:
    """The number of valid labels, at least 1."""
    total = build.op("sum", valid, axis=axes, keepdims=True)
    return build.op("_maximum_scalar", total, scalar=1.0)
