"""Operators that sample images at positions in other tensors: batch and channel are free."""

from __future__ import annotations

from tofu.lang import Opaque, Over, Reindex, Rewrite, Sum, apply, op
from tofu.tdl._shapes import instances, zero

# --- Sampling on a grid -------------------------------------------------------------------


@op(name="BilinearSampler")
def bilinear_sampler(data, grid):
    """Each place of the grid reads anywhere in a plane; and the grid itself."""
    (sampled,) = instances("ncyx", (data, "nc.."), (grid, "n.yx"))
    return sampled, *instances("nyx.", (grid, "n.yx"), tag="g")


@op(name="_backward_BilinearSampler")
def backward_bilinear_sampler(ograd, data, saved, grid):
    """The gradients of data, summed over the grid, and of the grid, summed over channels."""
    reads = (ograd, "ncyx"), (data, "nc.."), (saved, "nyx."), (grid, "n.yx")
    return instances("nc.. n.yx", *reads)


@op(name="GridGenerator")
def grid_generator(data):
    """Positions per instance, and a constant."""
    constant = ".." if data.ndim == 2 else "..."
    return *instances("n...", (data, "n")), *instances(constant, tag="c")


@op(name="_backward_GridGenerator")
def backward_grid_generator(ograd, *constant, out_shapes):
    """The gradient of the transformation or the flow."""
    word = "n" + "." * (len(out_shapes[0]) - 1)
    return instances(word, (ograd, "n"), *((x, "") for x in constant))


@op(name="SpatialTransformer")
def spatial_transformer(data, loc):
    """Each instance sampled on its own grid; a constant; the grid."""
    (sampled,) = instances("nc..", (data, "nc"), (loc, "n"))
    return sampled, *instances("..", tag="c"), *instances("n..", (loc, "n"), tag="g")


@op(name="_backward_SpatialTransformer")
def backward_spatial_transformer(ograd, constant, grid, data):
    """The gradients of data, and of the transformation, summed over channels."""
    return instances("nc.. n.", (ograd, "nc"), (constant, ""), (grid, "n"), (data, "nc"))


@op(name="Correlation")
def correlation(first, second):
    """Products of shifted images, and the images with their borders."""
    return instances("n... n... n...", (first, "n"), (second, "n"))


@op(name="_backward_Correlation")
def backward_correlation(ograd, first, second):
    """The gradients of both images."""
    return instances("n... n...", (ograd, "n"), (first, "n"), (second, "n"))


# --- Regions of interest, (number, 5), that name an image each ------------------------------


@op(name="ROIPooling")
def roi_pooling(data, rois):
    """The maxima of a region's bins, and their positions, which count channels: these are whole."""
    return instances("r... r...", (data, ""), (rois, "r"))


@op(name="_backward_ROIPooling")
def backward_roi_pooling(ograd, rois, places):
    """The gradient of data, summed over regions; zero for the regions."""
    by_data = instances("....", (ograd, "r"), (rois, "r"), (places, "r"))
    return *by_data, *zero(rois, "r")


@op(name=("_contrib_ROIAlign", "_contrib_RROIAlign"))
def roi_align(data, rois, *, position_sensitive=False):
    """The means of a region's bins; if position sensitive, channels are whole."""
    if position_sensitive:
        return instances("r...", (data, ""), (rois, "r"))
    return instances("rc..", (data, ".c"), (rois, "r"))


@op(name="_backward_ROIAlign")
def backward_roi_align(ograd, rois, *, position_sensitive=False):
    """The gradient of data, summed over regions; zero for the regions."""
    by_data, reads = ("....", "r") if position_sensitive else (".c..", "rc")
    return *instances(by_data, (ograd, reads), (rois, "r")), *zero(rois, "r")


@op(name="_contrib_PSROIPooling")
def position_sensitive_pooling(data, rois):
    """The means of a region's bins, each over its own channels."""
    return instances("r...", (data, ""), (rois, "r"))


@op(name="_backward__contrib_PSROIPooling")
def backward_position_sensitive_pooling(ograd, rois):
    """The gradient of data, summed over regions; zero for the regions."""
    return *instances("....", (ograd, "r"), (rois, "r")), *zero(rois, "r")


@op(name="_contrib_DeformablePSROIPooling")
def deformable_pooling(data, rois, trans=None):
    """The means of a region's shifted bins, and their counts."""
    reads = [(data, ""), (rois, "r"), *([(trans, "r")] if trans is not None else [])]
    return instances("r... r...", *reads)


@op(name="_backward__contrib_DeformablePSROIPooling")
def backward_deformable_pooling(ograd, data, rois, *rest):
    """The gradients of data, summed over regions, and of the shifts; zero for the regions."""
    reads = (ograd, "r"), (data, ""), (rois, "r"), *((x, "r") for x in rest)
    by_shift = instances("r...", *reads, tag="s") if len(rest) > 1 else ()
    return *instances("....", *reads), *zero(rois, "r"), *by_shift


# --- Resampling ----------------------------------------------------------------------------


def _nearest(data, scale):
    """Each element as a square."""
    space, steps = ["y", "x"], ["u", "v"]
    return Reindex(
        ["n", "c", *space, *steps],
        [*data.shape, scale, scale],
        at=lambda n, c, y, x, u, v: (n, c, y * scale + u, x * scale + v),
        value=lambda n, c, y, x, *_: data[n, c, y, x],
    )


_FILTERS = (Rewrite("num_filter", {"size": "c"}),)


@op(name="UpSampling", rewrites=_FILTERS)
def up_sampling(*args, scale, sample_type="nearest", multi_input_mode="concat"):
    """Planes upsampled; several are concatenated along channels, or added."""
    if sample_type == "bilinear":
        return instances("nc..", (args[0], "nc"), (args[1], "c"))
    if len(args) == 1:
        return _nearest(args[0], scale)
    if multi_input_mode == "sum":
        return instances("nc..", *((x, "nc") for x in args))
    return instances("n...", *((x, "n") for x in args))


@op(name="_backward_UpSampling", rewrites=_FILTERS)
def backward_up_sampling(
    ograd, *args, scale, sample_type="nearest", multi_input_mode="concat", out_shapes
):
    """Gradients: of each plane the sum over a square, of the filter the sum over the batch."""
    if sample_type == "bilinear":
        return instances("nc.. c...", (ograd, "nc"), (args[0], "nc"), (args[1], "c"))
    if len(out_shapes) > 1:
        word = "nc" if multi_input_mode == "sum" else "n"
        return instances(" ".join([word.ljust(4, ".")] * len(out_shapes)), (ograd, word))

    def square(n, c, y, x):
        body = lambda u, v: ograd[n, c, y * scale + u, x * scale + v]  # noqa: E731
        return apply("square", Sum(body, extent=(scale, scale)))

    return square


def _shape_only(shapes):
    """Zero for a tensor that gives the size."""
    return instances(" ".join("." * len(s) for s in shapes), tag="z")


@op(name="_contrib_BilinearResize2D")
def bilinear_resize(data, like=None):
    """Space is resampled, possibly to the size of another tensor."""
    return instances("nc..", (data, "nc"), *([(like, "")] if like is not None else []))


@op(name="_backward_contrib_BilinearResize2D")
def backward_bilinear_resize(ograd, *, out_shapes):
    """The gradient of data; zero for the tensor that gives the size."""
    return *instances("nc..", (ograd, "nc")), *_shape_only(out_shapes[1:])


@op(name="Crop")
def crop(data, like=None):
    """A window of each plane, possibly of another tensor's size."""
    return instances("nc..", (data, "nc"), *([(like, "")] if like is not None else []))


@op(name="_backward_Crop")
def backward_crop(ograd, *, out_shapes):
    """Zeros around the head gradient; zero for the tensor that gives the size."""
    return *instances("nc..", (ograd, "nc")), *_shape_only(out_shapes[1:])


# --- Convolution at learned places ------------------------------------------------------------

_OUTPUT_CHANNELS = (Rewrite("num_filter", {"size": "o"}),)


def _deformable(data, places, weight, bias, groups):
    """Over batch and output channels; a sum over input channels if there is one group."""
    sample = Opaque("Sample")
    if groups != (1, 1):
        rest = [*places, weight, *([bias] if bias is not None else [])]
        return instances("n...", (data, "n"), *((x, "n" if x in places else "") for x in rest))

    def element(n, o, *place):
        whole = (slice(None),) * 3

        def term(i):
            shifts = (x[n, whole] for x in places)
            return sample(data[n, i, whole[1:]], *shifts, weight[o, i, whole[1:]])[place]

        value = Sum(term)
        return value if bias is None else value + bias[o]

    return Over(["n", "o", "y", "x"], element)


def _backward_deformable(ograd, data, places, weight, no_bias, groups):
    if groups != (1, 1):
        reads = (ograd, "n"), (data, "n"), *((x, "n") for x in places), (weight, "")
        by_weight = instances("....", *reads, tag="w")
        by_bias = () if no_bias else instances(".", (ograd, "n"), tag="b")
        return *instances("n... " * (1 + len(places)), *reads), *by_weight, *by_bias
    reads = (ograd, "no"), (data, "ni"), *((x, "n") for x in places), (weight, "oi")
    by_bias = () if no_bias else instances("o", (ograd, "no"), tag="b")
    return *instances(f"ni.. {'n... ' * len(places)} oi..", *reads), *by_bias


@op(name="_contrib_DeformableConvolution", rewrites=_OUTPUT_CHANNELS)
def deformable_convolution(data, offset, weight, bias=None, *, num_group=1, num_deformable_group=1):
    """A convolution whose window is shifted at every position."""
    return _deformable(data, [offset], weight, bias, (num_group, num_deformable_group))


@op(name="_backward__contrib_DeformableConvolution", rewrites=_OUTPUT_CHANNELS)
def backward_deformable_convolution(
    ograd, data, offset, weight, bias=None, *, num_group=1, num_deformable_group=1, no_bias=False
):
    """The gradients of data, offsets, weight and bias."""
    groups = num_group, num_deformable_group
    return _backward_deformable(ograd, data, [offset], weight, no_bias, groups)


@op(name="_contrib_ModulatedDeformableConvolution", rewrites=_OUTPUT_CHANNELS)
def modulated_deformable_convolution(
    data, offset, mask, weight, bias=None, *, num_group=1, num_deformable_group=1
):
    """A convolution whose window is shifted and weighted at every position."""
    return _deformable(data, [offset, mask], weight, bias, (num_group, num_deformable_group))


@op(name="_backward__contrib_ModulatedDeformableConvolution", rewrites=_OUTPUT_CHANNELS)
def backward_modulated_deformable_convolution(
    ograd,
    data,
    offset,
    mask,
    weight,
    bias=None,
    *,
    num_group=1,
    num_deformable_group=1,
    no_bias=False,
):
    """The gradients of data, offsets, mask, weight and bias."""
    groups = num_group, num_deformable_group
    return _backward_deformable(ograd, data, [offset, mask], weight, no_bias, groups)
