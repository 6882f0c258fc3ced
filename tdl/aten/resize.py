"""Pooling, padding and interpolation, whose space is whole, and their gradients."""

from __future__ import annotations

from tofu.lang import Rewrite, op
from tofu.tdl._shapes import instances, letters

_INTERPOLATIONS = {
    1: ("upsample_nearest1d", "upsample_linear1d", "_upsample_nearest_exact1d"),
    2: (
        *("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d"),
        *("_upsample_nearest_exact2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    ),
    3: ("upsample_nearest3d", "upsample_trilinear3d", "_upsample_nearest_exact3d"),
}


def _names(space):
    """Operators over planes of so many dimensions."""
    pools = ("avg_pool", "_adaptive_avg_pool", "adaptive_max_pool", "max_unpool")
    both = [f"{name}{space}d" for name in (*pools, "reflection_pad", "replication_pad")]
    backward = [f"{name}_backward" for name in both]
    indices = [f"max_pool{space}d_with_indices{way}" for way in ("", "_backward")]
    return [
        f"aten.{name}.default" for name in (*both, *backward, *indices, *_INTERPOLATIONS[space])
    ]


def _planes(tensors, out_shapes, space):
    """Every output plane from the same planes of the tensors; the batch may be missing."""
    lead = letters(tensors[0].ndim - space)
    outputs = " ".join(lead + "." * space for _ in out_shapes)
    return instances(outputs, *((x, lead) for x in tensors))


def _describe(space):
    @op(name=_names(space))
    def planes(*tensors, out_shapes):
        """The output planes, each from the same image and channel of the data."""
        return _planes(tensors, out_shapes, space)

    @op(
        name=[f"aten.{name}_backward.default" for name in _INTERPOLATIONS[space]],
        rewrites=(Rewrite("input_size", {"output_shape": 0}),),
    )
    def upsample_backward(grad, *, out_shapes):
        """The gradient of the data, separate for each image and channel."""
        return _planes([grad], out_shapes, space)


for dimensions in _INTERPOLATIONS:
    _describe(dimensions)


def _grid(outputs, grad, data, grid):
    """Outputs of images and the places at which they are read, the same for all channels."""
    reads = ((grad, "nc"),) if grad is not None else ()
    return instances(outputs, *reads, (data, "nc"), (grid, "n"))


@op(name=[f"aten.grid_sampler_{space}d.default" for space in (2, 3)])
def grid_sampler(data, grid):
    """The elements of each image at the places of its grid."""
    return _grid("nc" + "." * (data.ndim - 2), None, data, grid)


@op(name=[f"aten.grid_sampler_{space}d_backward.default" for space in (2, 3)])
def grid_sampler_backward(grad, data, grid, *, output_mask):
    """The gradients of the images, and of the places, which add up over the channels."""
    space = "." * (data.ndim - 2)
    words = [word for word, wanted in zip(("nc" + space, "n." + space), output_mask) if wanted]
    return _grid(" ".join(words), grad, data, grid)
