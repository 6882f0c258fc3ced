"""Example calls of operators that work on each instance of a batch separately."""

from __future__ import annotations

import dataclasses

from tofu.lang.example_calls import Case, In, back, case, ints, positive, real

__all__ = ["CASES"]


def _losses() -> list[Case]:
    # These operators do not write the label's gradient, their second output.
    labels, unwritten = ints(4, 6), {"skip": (1,)}
    cases = [
        case("SoftmaxOutput", real(6, 4), labels, expect="i0"),
        back("_backward_SoftmaxOutput", "o0 i1", real(6, 4), labels, expect="i0", **unwritten),
    ]
    channels, last = {"multi_output": "True"}, {"preserve_shape": "True"}
    maps = real(6, 4, 3, 2)
    for data, label, attrs, expect, backward in (
        (real(6, 4), real(6, 4), {}, "i0", "i0 i1"),
        (real(6, 3, 4), ints(4, 6, 3), last, "i0 i1", "i0 i1"),
        (real(6, 3, 4), ints(4, 6, 3), {**last, "smooth_alpha": "0.1"}, "i0 i1", "i0 i1"),
        (real(6, 3, 4), real(6, 3, 4), last, "i0 i1", "i0 i1 i2"),
        (maps, ints(4, 6, 3, 2), channels, "i0 i2 i3", "i0"),
        (maps, ints(4, 6, 6), {**channels, "use_ignore": "1"}, "i0", "i0"),
        (maps, ints(4, 6, 1, 3, 2), channels, "i0 i2 i3", "i0"),
    ):
        cases.append(case("SoftmaxOutput", data, label, attrs=attrs, expect=expect))
        gradient = back("_backward_SoftmaxOutput", "o0 i1", data, label, attrs=attrs)
        cases.append(dataclasses.replace(gradient, expect=backward, **unwritten))
    names = {"Linear": "linear", "Logistic": "logistic", "MAE": "mae"}
    for name, short in names.items():
        forward = f"{name}RegressionOutput"
        inputs = real(6, 4), real(6, 4)
        cases.append(case(forward, *inputs, expect="i0 i1"))
        backward = f"_backward_{short}_reg_out"
        cases.append(back(backward, "i1 o0", *inputs, forward=forward, expect="i0", **unwritten))
        column = real(6, 1), real(6)  # an instance's label without its dimension
        cases.append(case(forward, *column, expect="i0"))
        cases.append(back(backward, "i1 o0", *column, forward=forward, expect="i0", **unwritten))
    # MXNet reads memory that nothing wrote for an instance without labels, that is with a 0.
    sequences = real(5, 6, 4), In((6, 2), "count", 2)
    more = {"outputs": 2, "dtype": "float32", "fixed": True}
    cases.append(case("CTCLoss", *sequences, expect="n", **more))
    reads = "g0 z1 o0 o1"
    more.update(forward="CTCLoss", **unwritten)
    gradient = back("_backward_ctc_loss", reads, *sequences, **more)
    cases.append(gradient)
    penalised = positive(6, 4), positive(4)
    cases += [
        back("_backward_MakeLoss", "", real(6, 4), attrs={"grad_scale": "2"}, expect="i0 i1"),
        back("_backward_MakeLoss", "", real(6, 4), attrs={"normalization": "batch"}, expect="i1"),
        case("SVMOutput", real(6, 4), labels, expect="i0 i1"),
        back("_backward_SVMOutput", "i1 o0", real(6, 4), labels, expect="n", **unwritten),
        back(
            "_backward_IdentityAttachKLSparseReg",
            "g0 i0 i1",
            *penalised,
            grads="i0",
            expect="c",
            dtype="float32",
        ),
    ]
    return cases


def _vision() -> list[Case]:
    image = real(4, 6, 4, 4)
    window = {"nsize": "3", "alpha": "0.5"}
    groups = {"num_groups": "3"}
    norm = image, positive(3), real(3)
    widths = {"mode": "constant", "pad_width": "(0, 0, 0, 0, 1, 1, 0, 2)", "constant_value": "3"}
    single = {"dtype": "float32"}
    return [
        # In single precision, oneDNN does not write the hidden output.
        case("LRN", image, attrs=window, outputs=2, expect="i0 i2 i3", skip=(1,), **single),
        back("_backward_LRN", "g0 i0 o1", image, attrs=window, outputs=2, **single),
        case("GroupNorm", *norm, attrs=groups, outputs=3, expect="n"),
        back("_backward_GroupNorm", "g0 i0 i1 o1 o2", *norm, attrs=groups, outputs=3, expect="n"),
        case("_contrib_AdaptiveAvgPooling2D", image, attrs={"output_size": "2"}, expect="b c"),
        back(
            "_backward_contrib_AdaptiveAvgPooling2D",
            "g0",
            image,
            attrs={"output_size": "2"},
            forward="_contrib_AdaptiveAvgPooling2D",
            expect="b c",
        ),
        case("Pad", image, attrs=widths, expect="a b"),
        case("Pad", image, attrs={**widths, "mode": "edge"}, expect="a b"),
        back("_backward_Pad", "g0", image, attrs=widths, expect="a b"),
        back("_backward_Pad", "g0", image, attrs={**widths, "mode": "edge"}, expect="a b"),
    ]


CASES = [*_losses(), *_vision()]
