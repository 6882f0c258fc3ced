"""Sample shapes and attributes of every described operator.

Dimensions that should be split in 2, 3 or 6 parts have multiples of 6 as sizes.
"""

from tofu.verify.calls.cases import (
    activation,
    attention,
    batched,
    broadcast,
    convolution,
    creation,
    deconvolution,
    detection,
    elementwise,
    image,
    indexing,
    layout,
    linalg,
    linear,
    movement,
    normalization,
    numpy_elementwise,
    numpy_movement,
    numpy_products,
    numpy_reduction,
    optimizer,
    ordering,
    quantized,
    random,
    recurrent,
    reduction,
    sampling,
    sequence,
)

ALL = [
    *elementwise.CASES,
    *broadcast.CASES,
    *reduction.CASES,
    *linear.CASES,
    *convolution.CASES,
    *deconvolution.CASES,
    *activation.CASES,
    *normalization.CASES,
    *movement.CASES,
    *indexing.CASES,
    *creation.CASES,
    *optimizer.CASES,
    *numpy_elementwise.CASES,
    *numpy_reduction.CASES,
    *batched.CASES,
    *attention.CASES,
    *detection.CASES,
    *image.CASES,
    *layout.CASES,
    *quantized.CASES,
    *recurrent.CASES,
    *sampling.CASES,
    *sequence.CASES,
    *ordering.CASES,
    *numpy_movement.CASES,
    *linalg.CASES,
    *numpy_products.CASES,
    *random.CASES,
]

_GPU = "MXNet has it for GPUs only"
# Described operators that cannot be run, and why.
NOT_RUN = {
    **dict.fromkeys(("_contrib_fft", "_contrib_ifft", "_contrib_count_sketch"), _GPU),
    "_backward__contrib_fft": _GPU,
    "_backward__contrib_ifft": _GPU,
    "_backward__contrib_count_sketch": _GPU,
    "_backward__contrib_ModulatedDeformableConvolution": _GPU,
    "_contrib_quantize_asym": "MXNet crashes",
    "_contrib_quantized_rnn": "its inputs are made by MXNet's own quantization only",
    "_backward_npi_copysign_scalar": "MXNet gives it two inputs and it takes one",
    "_backward_npi_rcopysign_scalar": "MXNet gives it two inputs and it takes one",
    "_backward_add": "no gradient uses it, and MXNet crashes",
}

__all__ = ["ALL", "NOT_RUN"]
