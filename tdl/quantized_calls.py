"""Example calls of operators on whole numbers."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, case

__all__ = ["CASES"]

_LOW, _HIGH = In((1,), "int", 1, "float32"), In((1,), "count", 1, "float32")


def _bytes(*shape: int) -> In:
    return In(shape, "int", 9, "int8")


def _elementwise() -> list[Case]:
    data, pair = In((6, 4), "positive", dtype="float32"), (_LOW, _HIGH)
    calibration = {"min_calib_range": "0.0", "max_calib_range": "1.0"}
    more = {"outputs": 3, "expect": "a b"}
    two = _bytes(6, 4), _bytes(6, 4), *pair, *pair
    relu = {"act_type": "relu"}
    sums = In((6, 4), "int", 99, "int32")
    return [
        case("_contrib_quantize", data, *pair, attrs={"out_type": "uint8"}, **more),
        case("_contrib_dequantize", _bytes(6, 4), *pair, expect="a b"),
        case("_contrib_quantize_v2", data, attrs={**calibration, "out_type": "int8"}, **more),
        case("_contrib_requantize", sums, *pair, attrs=calibration, **more),
        case("_contrib_quantized_act", _bytes(6, 4, 2, 2), *pair, attrs=relu, outputs=3),
        case("_contrib_quantized_elemwise_add", *two, **more),
        case("_contrib_quantized_elemwise_mul", *two, **more),
    ]


def _others() -> list[Case]:
    pair, image = (_LOW, _HIGH), _bytes(6, 4, 4, 4)
    window = {"kernel": "(2, 2)", "pool_type": "max"}
    joined = _bytes(6, 2, 2, 2), _bytes(6, 4, 2, 2), _LOW, _LOW, _HIGH, _HIGH
    weight, whole = _bytes(4, 4, 3, 3), In((6, 4, 4, 4), "int", 9, "uint8")
    ranges = *pair, *pair
    conv = {"kernel": "(3, 3)", "num_filter": "4", "no_bias": "True"}
    dense = {"num_hidden": "6", "no_bias": "True"}
    table = {"input_dim": "10", "output_dim": "4"}
    channel = In((4,), "positive", dtype="float32")
    calibrated = {"min_calib_range": "-1.0", "max_calib_range": "1.0"}
    more = {"outputs": 3}
    return [
        case("_contrib_quantized_flatten", image, *pair, expect="n", **more),
        case(
            "_contrib_quantized_pooling",
            *(image, *pair),
            attrs=window,
            imperative=True,
            outputs=3,
            expect="n c",
        ),
        case("_contrib_quantized_concat", *joined, attrs={"num_args": "2"}, **more),
        case(
            "_contrib_quantized_conv",
            whole,
            weight,
            *pair,
            *pair,
            attrs=conv,
            imperative=True,
            **more,
        ),
        case(
            "_contrib_quantized_fully_connected",
            *(_bytes(6, 4), _bytes(6, 4), *ranges),
            attrs=dense,
            expect="n o",
            **more,
        ),
        case(
            "_contrib_quantized_embedding",
            *(In((6,), "int", 10, "float32"), _bytes(10, 4), *pair),
            attrs=table,
            expect="a w",
            **more,
        ),
        case(
            "_contrib_quantized_batch_norm",
            *(image, *[channel] * 4, *pair),
            attrs=calibrated,
            expect="a b c d",
            **more,
        ),
    ]


CASES = [*_elementwise(), *_others()]
