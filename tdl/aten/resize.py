"""Pooling and interpolation, whose space is whole, and their gradients."""

from __future__ import annotations

from tofu.errors import InconclusiveError
from tofu.lang import Rewrite, op
from tofu.tdl._shapes import instances

_INTERPOLATIONS = (
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d"),
    *("upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"),
    *(f"_upsample_nearest_exact{dims}d" for dims in (1, 2, 3)),
)


def _planes(tensors, out_shapes):
    """Every output plane from the same planes of the tensors."""
    outputs = " ".join("nc" + "." * (len(shape) - 2) for shape in out_shapes)
    return instances(outputs, *((x, "nc") for x in tensors))


@op(
    name=(
        *("aten.max_pool2d_with_indices.default", "aten.avg_pool2d.default"),
        *("aten.max_pool2d_with_indices_backward.default", "aten.avg_pool2d_backward.default"),
        *("aten.avg_pool3d.default", "aten._adaptive_avg_pool2d.default"),
        *("aten.max_pool3d_with_indices.default", "aten.avg_pool1d.default"),
        *("aten._adaptive_avg_pool2d_backward.default", "aten.adaptive_max_pool2d.default"),
        *(f"aten.{name}.default" for name in _INTERPOLATIONS),
        *("aten.reflection_pad1d.default", "aten.reflection_pad2d.default"),
        "aten.replication_pad2d.default",
    )
)
def planes(*tensors, out_shapes):
    """The output planes, each from the same image and channel of the data."""
    if tensors[0].ndim < 3:
        raise InconclusiveError("pooling without a batch is not described")
    return _planes(tensors, out_shapes)


@op(
    name=[f"aten.{name}_backward.default" for name in _INTERPOLATIONS],
    rewrites=(Rewrite("input_size", {"output_shape": 0}),),
)
def upsample_backward(grad, *, out_shapes):
    """The gradient of the data, separate for each image and channel."""
    return _planes([grad], out_shapes)
