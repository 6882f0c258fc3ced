"""Example calls of image operators."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, case, positive

__all__ = ["CASES"]


def _images() -> list[Case]:
    image, batch = positive(6, 4, 3), positive(6, 4, 4, 3)
    planes, batch_planes = positive(3, 6, 4), positive(6, 3, 4, 4)
    single = {"dtype": "float32"}
    window = {"x": "1", "y": "0", "width": "2", "height": "3"}
    numbers = {"mean": "(0.1, 0.2, 0.3)", "std": "(0.5, 1, 2)"}
    cases = [
        case("_image_to_tensor", image, expect="c y x"),
        case("_image_to_tensor", batch, expect="n c y x"),
        case("_image_normalize", planes, attrs=numbers, expect="b c", **single),
        case("_image_normalize", batch_planes, attrs=numbers, expect="a c d", **single),
        back(
            "_backward_image_normalize",
            "g0 i0",
            batch_planes,
            attrs=numbers,
            forward="_image_normalize",
            expect="a c d",
            **single,
        ),
        case("_image_crop", image, attrs=window, expect=""),
        case("_image_crop", batch, attrs=window, expect="a"),
        back(
            "_backward_image_crop",
            "g0",
            batch,
            attrs=window,
            forward="_image_crop",
            expect="a",
        ),
        case("_image_resize", batch, attrs={"size": "(3, 5)"}, expect="a d", **single),
        case("_image_flip_left_right", image, expect="a", fixed=True),
        case("_image_flip_top_bottom", image, expect="b", fixed=True),
        # With other than 3 channels, MXNet reads out of bounds.
        case(
            "_image_adjust_lighting",
            image,
            attrs={"alpha": "(0.1, 0.2, 0.3)"},
            expect="a b",
            fixed=True,
        ),
    ]
    return cases


def _imperative() -> list[Case]:
    bytes_ = In((4, 6, 3), "int", 255, "uint8")
    sizes = {"w": "3", "h": "5"}
    border = {"top": "1", "bot": "1", "left": "2", "right": "0"}
    return [
        case("_cvimresize", bytes_, attrs=sizes, imperative=True),
        case("_cvcopyMakeBorder", bytes_, attrs=border, imperative=True),
    ]


CASES = [*_images(), *_imperative()]
