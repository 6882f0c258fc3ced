"""Example calls of boxes and anchors."""

from __future__ import annotations

from tofu.lang.example_calls import Case, In, back, boxes, case, ints, positive, real

__all__ = ["CASES"]

_SINGLE = {"dtype": "float32"}


def _multi_box() -> list[Case]:
    image, sizes = real(6, 3, 4, 2), {"sizes": "(0.5, 0.2)", "ratios": "(1, 2)"}
    anchors, labels = boxes(1, 4, 4), boxes(6, 3, 5, high=2)
    targets = anchors, labels, positive(6, 2, 4)
    inputs = positive(6, 3, 4), real(6, 16), anchors
    name = "_contrib_MultiBox"
    return [
        case(f"{name}Prior", image, attrs=sizes, expect="", **_SINGLE),
        back(f"_backward_{name}Prior", "g0 i0 o0", image, attrs=sizes, **_SINGLE),
        case(f"{name}Target", *targets, outputs=3, expect="n", **_SINGLE),
        # MXNet writes the last output only.
        back(f"_backward_{name}Target", "", *targets, outputs=3, skip=(0, 1), **_SINGLE),
        case(f"{name}Detection", *inputs, expect="n", **_SINGLE),
        back(f"_backward_{name}Detection", "g0 i0 i1 i2 o0", *inputs, **_SINGLE),
    ]


def _proposals() -> list[Case]:
    attrs = {"scales": "(2,)", "ratios": "(1,)", "rpn_post_nms_top_n": "4", "feature_stride": "8"}
    attrs["rpn_min_size"] = "0"
    tensors = positive(1, 2, 3, 3), real(1, 4, 3, 3), In((1, 3), "int", 1)
    cases = []
    for name in ("_contrib_Proposal", "_contrib_MultiProposal"):
        more = {"attrs": attrs, "outputs": 2, **_SINGLE}
        cases.append(case(name, *tensors, expect="", **more))
        cases.append(back(f"_backward_{name}", "", *tensors, **more))
    return cases


def _boxes() -> list[Case]:
    scored, single = boxes(6, 8, 6), {"overlap_thresh": "0.3", "id_index": "-1"}
    single.update(coord_start="2", score_index="1")
    first, second = boxes(6, 4), boxes(4, 4)
    scores = positive(6, 4, 3)
    matching = {"threshold": "0.1", "is_ascend": "False"}
    encoded = (
        *(real(6, 4), ints(3, 6, 4), boxes(6, 4, 4), boxes(6, 3, 4)),
        *(real(4), positive(4)),
    )
    decoded = real(6, 4, 4), boxes(1, 4, 4)
    return [
        case("_contrib_box_nms", scored, attrs=single, outputs=2, expect=""),
        back(
            "_backward_contrib_box_nms",
            "g0 z1 o0 o1",
            scored,
            attrs=single,
            outputs=2,
            forward="_contrib_box_nms",
        ),
        case("_contrib_box_iou", first, second, expect="i0 j0"),
        back("_backward_contrib_box_iou", "g0", first, second, forward="_contrib_box_iou"),
        case("_contrib_bipartite_matching", scores, attrs=matching, outputs=2, expect="a"),
        back(
            "_backward_contrib_bipartite_matching",
            "g0 g1",
            scores,
            attrs=matching,
            outputs=2,
            forward="_contrib_bipartite_matching",
        ),
        case("_contrib_box_encode", *encoded, outputs=2, expect="n b", **_SINGLE),
        case("_contrib_box_decode", *decoded, expect="n b", **_SINGLE),
    ]


def _others() -> list[Case]:
    times, marks = positive(6, 5), In((6, 5), "int", 3, "int32")
    events = (
        *(positive(6, 3), positive(3), positive(3), positive(6, 3), times, marks),
        *(In((6,), "int", 5), In((6,), "int", 9)),
    )
    return [
        case("_contrib_index_array", real(6, 4), expect=""),
        case("_contrib_index_array", real(6, 4), attrs={"axes": "(1,)"}, expect="i0"),
        case("_contrib_hawkesll", *events, outputs=2, expect="n", **_SINGLE),
        back(
            "_contrib_backward_hawkesll",
            "g0 g1 i0 i1 i2 i3 i4 i5 i6 i7",
            *events,
            forward="_contrib_hawkesll",
            outputs=2,
            grads="i0 i1 i2 i3 i4 i5 i6 i7",
            hide=(4, 5, 6, 7),
            skip=(3,),  # MXNet does not write it
            expect="n",
            **_SINGLE,
        ),
    ]


CASES = [*_multi_box(), *_proposals(), *_boxes(), *_others()]
