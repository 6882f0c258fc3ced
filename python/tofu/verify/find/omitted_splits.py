"""Working splits that an operator's description leaves out, and why."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EXPLAINED"]

_ZERO = "the gradient is always zero, so any cut works"
_SHAPE_ONLY = "only the shape of this input is read, so the values of a part do not matter"
_UNREAD = "this call never reads an input's values, so cutting it along any equal size works"

# operator -> why its other working splits are not strategies.
EXPLAINED: Mapping[str, str] = {
    "SoftmaxActivation": (
        "documented to normalize whole instances; on CPUs MXNet normalizes line by line"
    ),
    "UpSampling": "tensors of equal size are broadcast alike; others share only the batch",
    "_backward_LRN": _UNREAD,
    "_backward__contrib_MultiBoxDetection": _ZERO,
    "_backward__contrib_MultiBoxPrior": _ZERO,
    "_backward_contrib_bipartite_matching": _ZERO,
    "_backward_contrib_box_iou": _ZERO,
    "_backward_npi_copysign": "the gradient of the second operand is always zero",
    "_backward_topk": _UNREAD,
    "_contrib_BatchNormWithReLU": (
        "its gradient needs a workspace packed over all channels; tofu.mx lowers both"
    ),
    "_contrib_BilinearResize2D": f"{_SHAPE_ONLY}; an image is resized to its own size element-wise",
    "_contrib_quantized_flatten": "only the first of the dimensions that become one could be cut",
    "_contrib_quantized_fully_connected": (
        "without a bias, workers could add 32-bit integers; batch and units already divide it"
    ),
    "_npi_insert_scalar": "values of many dimensions are broadcast from a permuted shape",
    "_npi_norm": "only the norm of order 1 is a sum; it is described like the others",
    "amp_multicast": "tensors of equal size are split together, which leaves none of them whole",
    "scatter_nd": "values at one position overwrite each other, so the parts are a sum by chance",
    "size_array": "a size is the sum of the parts' sizes; only the shape is read",
}
