"""The worst moment of a step, as text."""

from __future__ import annotations

import dataclasses

import pytest

from tofu.errors import PlanError
from tofu.plans.peak import Held, Peak
from tofu.plans.render.peak import render_peak

from ..documents import stack

PEAK = Peak(
    worker=2,
    fixed={"parameters": 1024},
    nodes=("fc0_fwd@2", "fc1_fwd@2/in0/fetch", "fc1_fwd@2"),
    between={
        "gradients": (0, 1024, 0),
        "activations": (2048, 2048, 2048),
        "fetch_buffers": (0, 1024, 1024),
    },
    held=(
        Held("fc0_fwd@2", 0, 2048, "tensor"),
        Held("fc1_fwd@2/in0/fetch", 0, 1024, "fetched"),
        Held("fc0_fwd_backward@2", 1, 512, "result"),
        Held("fc1_fwd_backward@2", 1, 512, "result"),
    ),
    allocated_bytes=8192,
)


def test_a_table_of_what_is_alive():
    text = render_peak(dataclasses.replace(stack(), peak=PEAK))
    assert (
        "worker 2 needs most while it runs fc1_fwd (operator 2 of 3): 5.0 KiB\n"
        "1.0 KiB of that are parameters, states and inputs, which stay; 4.0 KiB are tensors "
        "between operators, for which MXNet allocates 8.0 KiB\n"
    ) in text
    rows = [line.split() for line in text.splitlines()[-3:]]
    assert rows == [
        ["fc0_fwd", "2.0", "KiB"],
        ["fc1_fwd", "fetched", "1.0", "KiB"],
        ["fc*_fwd_backward[1]", "x", "2", "result", "1.0", "KiB"],
    ]


def test_the_largest_first_and_the_rest_in_a_line():
    held = [Held(f"{'x' * i}fc_fwd@0", 0, 100 - i, "tensor") for i in range(30)]
    plan = dataclasses.replace(stack(), peak=dataclasses.replace(PEAK, held=tuple(held)))
    assert "... and 10 more, 755 bytes together; --all shows all" in render_peak(plan)
    assert "more" not in render_peak(plan, everything=True)


def test_memory_that_is_not_used_again_is_told():
    plan = dataclasses.replace(stack(), peak=dataclasses.replace(PEAK, reuses=False))
    assert "allocates 8.0 KiB where 4.0 KiB are needed at once; GPUs, and" in render_peak(plan)
    assert "needed at once" not in render_peak(dataclasses.replace(stack(), peak=PEAK))


def test_an_estimate_has_no_moments():
    with pytest.raises(PlanError, match="needs exact memory"):
        render_peak(stack())
