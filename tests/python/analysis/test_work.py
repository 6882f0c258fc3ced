"""The work of operators, compared with their definitions."""

from __future__ import annotations

import pytest

from tofu.analysis import work as counting
from tofu.analysis.work import KINDS, UNKNOWN, Work, is_light, operator_work


@pytest.mark.parametrize(
    ("op", "attrs", "ins", "outs", "kind", "flops"),
    [
        ("dot", {}, [(64, 32), (32, 64)], [(64, 64)], "product", 2 * 64 * 32 * 64),
        (
            "batch_dot",
            {},
            [(3, 64, 32), (3, 32, 64)],
            [(3, 64, 64)],
            "product",
            3 * 2 * 64 * 32 * 64,
        ),
        ("tanh", {}, [(5, 7)], [(5, 7)], "elementwise", 35),
        ("elemwise_add", {}, [(5, 7), (5, 7)], [(5, 7)], "elementwise", 35),
        ("add_n", {"num_args": "3"}, [(5,)] * 3, [(5,)], "elementwise", 2 * 5),
        ("sum", {"axis": "1"}, [(5, 7)], [(5,)], "reduction", 35),
        ("transpose", {}, [(5, 7)], [(7, 5)], "movement", 0),
        ("softmax", {}, [(5, 7)], [(5, 7)], "other", 35),
        ("no_such_operator", {}, [(5, 7)], [(5, 7)], "other", 0),
    ],
)
def test_the_operations_of_a_description_are_counted(
    op: str,
    attrs: dict[str, str],
    ins: list[tuple[int, ...]],
    outs: list[tuple[int, ...]],
    kind: str,
    flops: float,
) -> None:
    assert operator_work(op, attrs, ins, outs) == Work(kind, flops)


def test_a_description_that_fails_leaves_the_work_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(op: str) -> None:
        raise ValueError(f"no {op}")

    monkeypatch.setattr(counting, "description_of", fails)
    assert operator_work("tanh", {}, [(5, 71)], [(5, 71)]) == UNKNOWN


CONVOLUTION = {"kernel": "(3, 3)", "pad": "(1, 1)", "num_filter": "8", "no_bias": "True"}


def test_a_convolution_multiplies_every_element_of_its_window() -> None:
    work = operator_work("Convolution", CONVOLUTION, [(2, 4, 6, 6), (8, 4, 3, 3)], [(2, 8, 6, 6)])
    assert work == Work("convolution", 2 * (2 * 8 * 6 * 6) * 4 * 9)


@pytest.mark.parametrize("stride", [1, 2])
def test_each_gradient_of_a_convolution_takes_as_long_as_itself(stride: int) -> None:
    space = 6 // stride
    attrs = {**CONVOLUTION, "stride": f"({stride}, {stride})"}
    data, weight, out = (2, 4, 6, 6), (8, 4, 3, 3), (2, 8, space, space)
    forward = operator_work("Convolution", attrs, [data, weight], [out])
    backward = operator_work("_backward_Convolution", attrs, [out, data, weight], [data, weight])
    assert backward.kind == "convolution"
    assert backward.flops == pytest.approx(2 * forward.flops)


def test_the_gradients_of_a_dense_layer_take_twice_as_long_as_itself() -> None:
    attrs = {"num_hidden": "32", "no_bias": "True"}
    data, weight, out = (16, 64), (32, 64), (16, 32)
    forward = operator_work("FullyConnected", attrs, [data, weight], [out])
    backward = operator_work("_backward_FullyConnected", attrs, [out, data, weight], [data, weight])
    assert forward == Work("product", 2 * 16 * 32 * 64)
    assert backward == Work("product", 2 * forward.flops)


def test_what_is_done_with_a_sum_of_products_leaves_it_a_product() -> None:
    shapes = [(16, 64), (32, 64), (32,)]
    biased = operator_work("FullyConnected", {"num_hidden": "32"}, shapes, [(16, 32)])
    assert biased == Work("product", (2 * 64 + 1) * 16 * 32)


def test_a_product_with_few_operations_for_each_element_is_a_reduction() -> None:
    thin = operator_work("dot", {}, [(512, 512), (512, 1)], [(512, 1)])
    assert thin == Work("reduction", 2 * 512 * 512)
    wide = operator_work("dot", {}, [(512, 512), (512, 64)], [(512, 64)])
    assert wide.kind == "product"


def test_parts_share_the_work_of_the_whole() -> None:
    whole = operator_work("dot", {}, [(8, 16), (16, 4)], [(8, 4)])
    rows = operator_work("dot", {}, [(4, 16), (16, 4)], [(4, 4)])
    terms = operator_work("dot", {}, [(8, 8), (8, 4)], [(8, 4)])
    assert whole.flops == 2 * rows.flops == 2 * terms.flops
    assert {whole.kind, rows.kind} <= set(KINDS)


@pytest.mark.parametrize(
    ("op", "ins", "outs", "light"),
    [
        ("elemwise_add", [(5, 7), (5, 7)], [(5, 7)], True),
        ("sum", [(64, 32)], [(1,)], True),
        ("dot", [(64, 32), (32, 64)], [(64, 64)], False),
        ("not described", [(5, 7)], [(5, 7)], False),
    ],
)
def test_an_operator_is_light_if_memory_bounds_it(op, ins, outs, light):
    assert is_light(op, {}, ins, outs) is light
