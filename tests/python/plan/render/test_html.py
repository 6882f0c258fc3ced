"""A plan as a web page: it parses, is complete, and escapes names."""

import html.parser
import json
import re

import pytest

from tofu.plan import Plan, TensorPlan, render_html
from tofu.plan.render.explain import Section
from tofu.plan.render.html import _HEIGHT, _WIDTH, _rects, worker_colour
from tofu.plan.render.picture import draw

from ..documents import document, stack

VOID = {"meta", "rect", "br", "img", "link"}


class Page(html.parser.HTMLParser):
    """Checks that elements nest, and collects texts, tags and references."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.references = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data.strip())


def test_page_has_summary_steps_tensors_and_operators():
    page = Page(render_html(Plan.from_json(json.dumps(document(model="net")))))
    assert "Plan of net over 4 workers" in page.texts
    assert {"w", "b", "fc", "FullyConnected", "1,024", "2x2", "1="} <= set(page.texts)
    assert page.tags.count("svg") == 2


def test_page_shows_what_is_explained():
    section = Section("Tensor <w>", "Because.", ("cut", "bytes"), (("dimension 0", "96"),))
    page = Page(render_html(stack(), [section]))
    assert {"Explained", "Tensor <w>", "Because.", "dimension 0", "96"} <= set(page.texts)


def test_page_fetches_nothing():
    text = render_html(stack())
    assert Page(text).references == []
    assert not re.search(r"https?:|@import|url\(", text)


def test_names_are_text():
    plan = stack(layers=2, name="<script>alert({})</script>&amp;\"'")
    text = render_html(plan)
    page = Page(text)
    assert "script" not in page.tags
    assert "<script>alert(0)</script>&amp;\"'" in page.texts


def test_a_tensor_has_a_tile_of_each_workers_colour():
    tensors = [{"node": "w", "output": 0, "shape": [8, 6], "dtype": 0, "cuts": [0, 1]}]
    text = render_html(Plan.from_json(json.dumps(document(tensors=tensors))))
    svg = text[text.index("<svg") : text.index("</svg>")]
    assert re.findall(r"<title>worker ([\d, ]+)</title>", svg) == ["0", "1", "2", "3"]
    assert re.findall(r'fill="(#\w+)"', svg) == [worker_colour(worker, 4) for worker in range(4)]


def test_a_copy_is_drawn_in_the_stripes_of_its_owners():
    tensors = [{"node": "w", "output": 0, "shape": [8, 6], "dtype": 0, "cuts": [-1, 1]}]
    text = render_html(Plan.from_json(json.dumps(document(tensors=tensors))))
    assert re.findall(r"<title>worker ([\d, ]+)</title>", text) == ["0, 2", "1, 3"]


def test_more_pieces_than_can_be_seen_are_not_drawn():
    tensors = [{"node": "w", "output": 0, "shape": [1024], "dtype": 0, "cuts": [0] * 9}]
    steps = [{"parts": 2, "groups": 2**i, "bytes": 0} for i in range(9)]
    plan = document(workers=512, parts=[2] * 9, steps=steps, tensors=tensors, operators=[])
    assert "<svg" not in render_html(Plan.from_json(json.dumps(plan)))


def test_colours_differ():
    assert len({worker_colour(worker, 64) for worker in range(64)}) == 64


def test_planes_stand_apart_and_fill_the_picture():
    picture = draw(TensorPlan("w", 0, (4, 4, 4), 0, (0, 1, 2)), (2, 2, 2))
    rects = _rects(picture, 8)
    assert picture.planes == 2 and rects is not None
    columns = sorted({(rect.x, rect.x + rect.width) for rect in rects})
    gaps = [b[0] - a[1] for a, b in zip(columns, columns[1:])]
    assert gaps == pytest.approx([0, 4, 0])
    assert (columns[0][0], columns[-1][1]) == pytest.approx((0, _WIDTH))
    assert {rect.y + rect.height for rect in rects} == {_HEIGHT / 2, _HEIGHT}
