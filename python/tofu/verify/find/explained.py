"""Splits that running an operator finds and that its description does without, and why."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EXPLAINED"]

_ZERO = "the gradient is zero whatever is read, so a cut of anything holds"
_SHAPE_ONLY = "only the shape of this input is read, so the values in a cut do not matter"
_UNREAD = "this call never reads an input's values, so cutting it along any size alike holds"

# By operator: why what is found is no strategy.
EXPLAINED: Mapping[str, str] = {
    "IdentityAttachKLSparseReg": "the moving average is read by the gradient only",
    "SoftmaxActivation": (
        "instances are documented to be normalized whole; on CPUs MXNet does it line by line"
    ),
    "UpSampling": "tensors of one size are stretched alike; of others only the batch is common",
    "_backward_LRN": _UNREAD,
    "_backward__contrib_MultiBoxDetection": _ZERO,
    "_backward__contrib_MultiBoxPrior": _ZERO,
    "_backward_contrib_bipartite_matching": _ZERO,
    "_backward_contrib_box_iou": _ZERO,
    "_backward_npi_copysign": "the gradient by the second operand is always zero",
    "_backward_topk": _UNREAD,
    "_contrib_BatchNormWithReLU": (
        "its gradient needs a workspace packed over all channels; tofu.mx lowers both"
    ),
    "_contrib_BilinearResize2D": f"{_SHAPE_ONLY}; to its own size an image is resized element-wise",
    "_contrib_MultiBoxTarget": "class predictions are read only where negatives are mined",
    "_contrib_quantized_flatten": "of the dimensions that become one the first alone could be cut",
    "_contrib_quantized_fully_connected": (
        "without a bias, workers could add 32-bit integers; batch and units divide it without"
    ),
    "_npi_insert_scalar": "values of many dimensions are broadcast from a permuted shape",
    "_npi_norm": "of all norms only the one of order 1 is a sum; it is described as any other",
    "amp_multicast": "tensors of one size are split together, which leaves none of them whole",
    "scatter_nd": "places that meet overwrite each other, so the parts are a sum by chance",
    "size_array": "a size is the sum of the parts' sizes; only the shape is read",
    "slice_like": _SHAPE_ONLY,
}
