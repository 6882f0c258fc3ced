"""Example calls of operators that sample images at positions given by other tensors."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, case, positive, real

__all__ = ["CASES"]

_SINGLE = {"dtype": "float32", "fixed": True}  # they do not check their sizes


def _grids() -> list[Case]:
    data, grid = real(6, 2, 4, 4), real(6, 2, 4, 2)
    affine = {"transform_type": "affine", "target_shape": "(4, 3)"}
    warp = {"transform_type": "warp"}
    spatial = {**affine, "sampler_type": "bilinear"}
    theta, flow = real(6, 6), real(6, 2, 4, 3)
    both = real(6, 4, 5, 5), real(6, 4, 5, 5)
    shifts = {"kernel_size": "1", "max_displacement": "1", "pad_size": "1"}
    return [
        # On CPUs MXNet neither writes nor reads the second output.
        case("BilinearSampler", data, grid, outputs=2, expect="n c y x", skip=(1,)),
        back("_backward_BilinearSampler", "g0 i0 o1 i1", data, grid, outputs=2, expect="n c y x"),
        case("GridGenerator", theta, attrs=affine, outputs=2, expect="n", **_SINGLE),
        back(
            "_backward_GridGenerator",
            "g0 o1",
            theta,
            attrs=affine,
            outputs=2,
            expect="n",
            **_SINGLE,
        ),
        case("GridGenerator", flow, attrs=warp, outputs=2, expect="n", **_SINGLE),
        back("_backward_GridGenerator", "g0", flow, attrs=warp, outputs=2, expect="n", **_SINGLE),
        case("SpatialTransformer", data, theta, attrs=spatial, outputs=3, expect="n c"),
        back(
            "_backward_SpatialTransformer",
            "g0 o1 o2 i0",
            *(data, theta),
            attrs=spatial,
            outputs=3,
            expect="n c",
        ),
        case("Correlation", *both, attrs=shifts, outputs=3, expect="n"),
        back("_backward_Correlation", "g0 o1 o2", *both, attrs=shifts, outputs=3, expect="n"),
    ]


def _regions() -> list[Case]:
    data, rois = real(2, 6, 8, 8), In((6, 5), "rois", 2)
    bins = {"pooled_size": "(2, 2)", "spatial_scale": "1"}
    parts = {"pooled_size": "2", "spatial_scale": "1", "output_dim": "1", "group_size": "2"}
    options = {"attrs": bins, "expect": "r c", "dtype": "float32"}
    whole = {**options, "expect": "r"}
    sensitive = {**bins, "position_sensitive": "True"}
    plane = real(2, 4, 8, 8)
    return [
        case("ROIPooling", data, rois, outputs=2, **whole),
        back("_backward_ROIPooling", "g0 i1 o1", data, rois, outputs=2, skip=(1,), **whole),
        case("_contrib_ROIAlign", data, rois, **options),
        back("_backward_ROIAlign", "g0 i1", data, rois, forward="_contrib_ROIAlign", **options),
        case("_contrib_ROIAlign", plane, rois, attrs=sensitive, expect="r", **_SINGLE),
        case("_contrib_RROIAlign", data, In((6, 6), "rois", 2), **options),
        case("_contrib_PSROIPooling", plane, rois, attrs=parts, expect="r", **_SINGLE),
        back(
            "_backward__contrib_PSROIPooling",
            "g0 i1",
            *(plane, rois),
            forward="_contrib_PSROIPooling",
            attrs=parts,
            expect="r",
            skip=(1,),
            **_SINGLE,
        ),
        back(
            "_backward__contrib_DeformablePSROIPooling",
            "g0 i0 i1 o1",
            *(plane, rois),
            forward="_contrib_DeformablePSROIPooling",
            attrs={**parts, "no_trans": "True"},
            outputs=2,
            expect="r",
            skip=(1,),
            **_SINGLE,
        ),
        case(
            "_contrib_DeformablePSROIPooling",
            *(plane, rois),
            attrs={**parts, "no_trans": "True"},
            outputs=2,
            expect="r",
            **_SINGLE,
        ),
    ]


def _resampling() -> list[Case]:
    data = real(6, 4, 3, 2)
    twice = {"scale": "2", "sample_type": "nearest", "num_args": "1"}
    joined = {**twice, "num_args": "2"}
    added = {**joined, "multi_input_mode": "sum"}
    smooth = {"scale": "2", "sample_type": "bilinear", "num_args": "2", "num_filter": "4"}
    filters = data, positive(4, 1, 4, 4)
    sizes = {"height": "5", "width": "7"}
    window = {"num_args": "1", "offset": "(1, 0)", "h_w": "(2, 2)"}
    by_size = {"num_args": "2", "center_crop": "True"}
    pair = data, real(6, 2, 2, 1)
    like = {"mode": "like"}
    return [
        case("UpSampling", data, attrs=twice, expect="n c y x"),
        back("_backward_UpSampling", "g0", data, attrs=twice, expect="n c y x"),
        case("UpSampling", data, data, attrs=joined, expect="n"),
        back("_backward_UpSampling", "g0", data, data, attrs=joined, expect="n"),
        case("UpSampling", data, data, attrs=added, expect="n c"),
        back("_backward_UpSampling", "g0", data, data, attrs=added, expect="n c"),
        case("UpSampling", *filters, attrs=smooth, expect="n c"),
        back("_backward_UpSampling", "g0 i0 i1", *filters, attrs=smooth, expect="n c"),
        case("_contrib_BilinearResize2D", data, attrs=sizes, expect="n c"),
        back(
            "_backward_contrib_BilinearResize2D",
            "g0",
            data,
            attrs=sizes,
            forward="_contrib_BilinearResize2D",
            expect="n c",
        ),
        case("_contrib_BilinearResize2D", data, data, attrs=like, expect="n c"),
        case("Crop", data, attrs=window, expect="n c", **_SINGLE),
        back("_backward_Crop", "g0", data, attrs=window, expect="n c", **_SINGLE),
        case("Crop", *pair, attrs=by_size, expect="n c", **_SINGLE),
        back("_backward_Crop", "g0", *pair, attrs=by_size, expect="n c", **_SINGLE),
    ]


def _deformable() -> list[Case]:
    attrs = {"kernel": "(2, 2)", "num_filter": "6", "no_bias": "False"}
    tensors = real(6, 4, 4, 4), real(6, 8, 3, 3), real(6, 4, 2, 2), real(6)
    masked = *tensors[:2], positive(6, 4, 3, 3), *tensors[2:]
    more = {"attrs": attrs, "expect": "n o i", **_SINGLE}
    gradient = {**more, "expect": "n o i"}
    name = "_contrib_DeformableConvolution"
    modulated = "_contrib_ModulatedDeformableConvolution"
    groups = {**attrs, "num_deformable_group": "2"}
    grouped = {**more, "attrs": groups, "expect": "n"}
    offsets = tensors[0], real(6, 16, 3, 3), *tensors[2:]
    return [
        case(name, *tensors, **more),
        back(f"_backward_{name}", "g0 i0 i1 i2", *tensors, forward=name, **gradient),
        case(name, *offsets, **grouped),
        back(f"_backward_{name}", "g0 i0 i1 i2", *offsets, forward=name, **grouped),
        case(modulated, *masked, **more),
    ]


CASES = [*_grids(), *_regions(), *_resampling(), *_deformable()]
