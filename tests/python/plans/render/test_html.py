"""A plan as a web page: it parses, its data is the plan's, it escapes names and fetches nothing.

test_browser.py tests the page's behaviour if there is a browser.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import tofu.plans.render.html
from tofu.plans import Plan, TensorPlan
from tofu.plans.layers import direction_of, layers_of
from tofu.plans.peak import Held, Peak
from tofu.plans.render.explain import Section
from tofu.plans.render.html import render_html, render_html_difference, worker_colour
from tofu.plans.render.picture import draw, worker_pieces

from ..documents import document, stack
from .pages import Page

FOLDER = Path(tofu.plans.render.html.__file__).with_name("page")
MOST_BYTES = 2 * 10**6


def planned(**changes):
    return Plan.from_json(json.dumps(document(**changes)))


def test_page_has_summary_and_plan():
    plan = planned(model="net")
    page = Page(render_html(plan))
    assert "Plan of net over 4 workers" in page.texts
    assert {"Layers", "Tensors", "Operators", "Memory"} <= set(page.texts)
    assert any("1.5 KiB communicated per training step" in text for text in page.texts)
    (own,) = page.data["plans"]
    assert (own["workers"], own["parts"], own["bytes"], own["bound"]) == (4, [2, 2], 1536, 1536)
    assert own["steps"] == [[2, 1, 512], [2, 2, 1024]]
    assert page.data["command"] == ["tofu plan --workers 4", "SCRIPT|MODEL"]


@pytest.mark.parametrize("plan", [planned(), stack(7)], ids=["small", "stack"])
def test_data_is_that_of_the_plan(plan):
    page = Page(render_html(plan))
    found = page.tensors()
    assert len(found) == len(plan.tensors)
    for tensor in plan.tensors:
        shape, dtype, cuts, layer, picture = found[tensor.node, tensor.output]
        assert (shape, dtype, cuts) == (tensor.shape, tensor.dtype_name, tensor.cuts)
        drawn = draw(tensor, plan.parts)
        assert picture["grid"] == [drawn.rows, drawn.columns, drawn.planes]
        assert picture["cells"] == [[c.row, c.column, list(c.workers)] for c in drawn.cells]
        assert picture["pieces"] == list(map(list, worker_pieces(tensor, plan.parts)))
        assert layer in {each.name for each in layers_of(plan)}
    operators = page.operators()
    assert set(operators) == {operator.node for operator in plan.operators}
    for operator in plan.operators:
        kind, splits, count, layer, direction = operators[operator.node]
        assert (kind, splits, count) == (operator.op, operator.cuts, operator.bytes)
        assert direction == direction_of(operator)
        assert layer in {each.name for each in layers_of(plan)}
    assert set(page.data["layers"]) == {each.name for each in layers_of(plan)}


def test_a_page_has_the_bounds_of_unequal_tiles():
    tensors = [
        {"node": name, "output": 0, "shape": shape, "dtype": 0, "cuts": [0, 0]}
        for name, shape in (("w", [7, 2]), ("v", [8, 2]))
    ]
    data = Page(render_html(planned(tensors=tensors))).data
    shape = data["tensors"]["shapes"].index([7, 2])
    assert data["plans"][0]["begins"] == {f"{shape}:0": [[0, 2, 4, 6], None]}


def test_only_updated_variables_are_parameters():
    tensors = [
        {"node": node, "output": 0, "shape": [4], "dtype": 0, "cuts": [0, -1]}
        for node in ("data", "fc_weight", "fc_weight_update")
    ]
    operators = [{"node": "fc_weight_update", "op": "sgd", "cuts": [None, None], "bytes": 0}]
    page = Page(render_html(planned(tensors=tensors, operators=operators)))
    assert page.data["tensors"]["parameter"] == [0, 1, 0]


def test_page_shows_what_is_explained():
    section = Section("Tensor <w>", "Because.", ("cut", "bytes"), (("dimension 0", "96"),))
    page = Page(render_html(stack(), [section]))
    assert {"Explained", "Tensor <w>", "Because.", "dimension 0", "96"} <= set(page.texts)
    assert "Explained" not in Page(render_html(stack())).texts


def test_page_fetches_nothing():
    text = render_html(stack())
    assert Page(text).references == []
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttp|\bimport\b", text)


def test_names_are_text():
    name = "</script><script>alert({})</script><!--&amp;\"'"
    text = render_html(stack(layers=2, name=name))
    page = Page(text)
    assert page.tags.count("script") == 2 == text.count("<script")
    assert "<!--" not in text and "alert(0)</" not in text
    assert name.format(0) in page.data["names"]
    titled = Page(render_html(planned(model="<b>net</b>")))
    assert "b" not in titled.tags and "Plan of <b>net</b> over 4 workers" in titled.texts


def test_no_script_makes_elements_from_text():
    scripts = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js"))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", scripts
    )


def test_every_element_that_a_script_asks_for_is_there():
    page = Page(render_html(stack()))
    scripts = "".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js"))
    asked = set(re.findall(r'byId\("([\w-]+)"\)', scripts))
    assert len(asked) > 15 and asked <= set(page.ids)
    assert set(page.controls) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert set(tofu.plans.render.html._SCRIPTS) == {path.name for path in FOLDER.glob("*.js")}


def test_a_copy_has_all_its_owners():
    tensors = [{"node": "w", "output": 0, "shape": [8, 6], "dtype": 0, "cuts": [-1, 1]}]
    page = Page(render_html(planned(tensors=tensors)))
    *_, picture = page.tensors()["w", 0]
    assert [workers for *_, workers in picture["cells"]] == [[0, 2], [1, 3]]
    assert picture["axes"] == [0, 1]
    assert page.data["colours"] == [worker_colour(worker, 4) for worker in range(4)]


def test_more_pieces_than_can_be_seen_are_not_drawn():
    tensors = [{"node": "w", "output": 0, "shape": [2048], "dtype": 0, "cuts": [0] * 11}]
    steps = [{"parts": 2, "groups": 2**i, "bytes": 0} for i in range(11)]
    plan = document(workers=2048, parts=[2] * 11, steps=steps, tensors=tensors, operators=[])
    *_, picture = Page(render_html(Plan.from_json(json.dumps(plan)))).tensors()["w", 0]
    assert picture["cells"] is None and picture["pieces"] is None


def test_colours_differ():
    assert len({worker_colour(worker, 64) for worker in range(64)}) == 64


def test_planes_stand_apart():
    picture = draw(TensorPlan("w", 0, (4, 4, 4), 0, (0, 1, 2)), (2, 2, 2))
    assert (picture.rows, picture.columns, picture.planes) == (2, 2, 2)
    assert sorted({cell.column // picture.columns for cell in picture.cells}) == [0, 1]


def test_memory_over_a_step_keeps_the_worst_moment():
    count, worst = 5000, 3210
    sizes = [at % 700 for at in range(count)]
    sizes[worst] = 12345
    nodes = tuple(f"fc{at}_fwd@1" for at in range(count))
    held = (Held(nodes[worst], 0, 12345, "tensor"),)
    between = {"gradients": (7,) * count, "activations": tuple(sizes)}
    peak = Peak(1, {"parameters": 900, "activations": 100}, nodes, between, held, 20000)
    page = Page(render_html(dataclasses.replace(stack(), peak=peak)))
    found = page.data["plans"][0]["peak"]
    assert (found["worker"], found["fixed"], found["allocated"]) == (1, 1000, 20000)
    assert (found["count"], found["moment"]) == (count, worst)
    assert 300 < len(found["points"]) <= 600
    (point,) = (point for point in found["points"] if point[0] == worst)
    assert page.data["names"][point[1]] == f"fc{worst}_fwd"
    assert dict(zip(found["kinds"], point[2])) == {
        "parameters": 900, "gradients": 7, "optimizer state": 0, "activations": 12445,
        "fetch buffers": 0,
    }  # fmt: skip
    assert found["held"] == [[f"fc{worst}_fwd", 1, "tensor", 12345]]


def test_a_comparison_has_both_plans():
    first = planned(model="net")
    changed = document()["tensors"]
    changed[0]["cuts"] = [1, 1]
    second = planned(
        model="net",
        tensors=[*changed[:1], {**changed[1], "node": "c"}],
        operators=[
            {"node": "fc", "op": "FullyConnected", "cuts": [None, "b"], "bytes": 192},
            {"node": "late", "op": "relu", "cuts": ["i0", None], "bytes": 8},
        ],
        total_bytes=2048,
    )
    page = Page(render_html_difference(first, second, ("a.plan", "<b>.plan")))
    assert [each["name"] for each in page.data["plans"]] == ["a.plan", "<b>.plan"]
    assert {"a.plan", "<b>.plan"} <= set(page.texts)
    for number, plan in enumerate((first, second)):
        found = page.tensors(number)
        assert {key: value[2] for key, value in found.items()} == {
            (tensor.node, tensor.output): tensor.cuts for tensor in plan.tensors
        }
    assert page.operators(0)["fc"][1:3] == (("b", None), 96)
    assert page.operators(1)["fc"][1:3] == ((None, "b"), 192)
    assert "late" not in page.operators(0) and page.operators(1)["late"][1:3] == (("i0", None), 8)
    assert page.data["operators"]["bytes"][0][1] == 0, "a plan fetches nothing for what it lacks"


def test_a_page_of_thousands_of_layers_stays_small():
    """The page has as many tensors and operators as WResNet-152-10, with names as long."""
    name = "wresnet_bottleneck{}_batchnorm3_running_mean_and_more"
    tensors = [
        {"node": name.format(i), "output": 0, "shape": [64, 8, i % 90, 4], "dtype": 0,
         "cuts": [i % 3, 0, (i // 3) % 3]}
        for i in range(7723)
    ]  # fmt: skip
    operators = [
        {"node": f"{name.format(i)}_fwd", "op": "Convolution", "cuts": ["b", "co", "ci"],
         "bytes": 1000 * i}
        for i in range(6165)
    ]  # fmt: skip
    steps = [{"parts": 2, "groups": 2**i, "bytes": 0} for i in range(3)]
    plan = planned(workers=8, parts=[2] * 3, steps=steps, tensors=tensors, operators=operators)
    assert len(render_html(plan).encode()) < MOST_BYTES
