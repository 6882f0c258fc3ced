"""The page of a plan in a headless Chromium: clicks, typing and texts.

Runs if the environment variable CHROMIUM names a browser, or the PATH has one ("apt-get install
chromium"); test_html.py checks the page's data everywhere.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tofu.plans import Plan
from tofu.plans.layers import DIRECTIONS, layers_of
from tofu.plans.peak import Held, Peak
from tofu.plans.plan import format_bytes
from tofu.plans.render import html as rendering
from tofu.plans.render.explain import Section
from tofu.plans.render.html import render_html, render_html_difference, worker_colour

from ..documents import document
from .browser import VARIABLE, Browser, find_browser

PAGE = Path(rendering.__file__).with_name("page")
TIMES = "\N{MULTIPLICATION SIGN}"
NASTY = "<img src=x onerror=alert(1)>'\"&"


@pytest.fixture(scope="module")
def browser():
    path = find_browser()
    if path is None:
        pytest.skip(f"no Chromium: install one, or let ${VARIABLE} name its file")
    try:
        found = Browser(path)
    except (OSError, AssertionError) as error:
        pytest.skip(f"{path} does not start here: {error}")
    yield found
    found.close()


def net(**changes):
    """A plan with a block of three layers, a copy on every worker, and names that try to escape."""

    def tensor(node, shape, cuts):
        return {"node": node, "output": 0, "shape": shape, "dtype": 0, "cuts": cuts}

    tensors = [
        tensor("data", [8, 6], [0, 0]),
        tensor("net_fc0_weight", [8, 6], [0, 1]),
        tensor("net_fc0_fwd", [8, 8], [0, -1]),
        tensor("net_fc1_weight", [14, 8, 4], [1, 2]),
        tensor("net_fc1_fwd", [8, 10], [0, 0]),
        tensor("net_fc0_weight_update", [8, 6], [0, 1]),
        tensor("net_fc1_weight_update", [14, 8, 4], [1, 2]),
        tensor(NASTY, [8], [0, 0]),
    ]
    operators = [
        {"node": node, "op": op, "cuts": ["b", None], "bytes": count}
        for node, op, count in (
            ("net_fc0_fwd", "FullyConnected", 3072),
            ("net_fc1_fwd", "FullyConnected", 512),
            ("net_fc0_weight_update", "sgd_update", 0),
            ("net_fc1_weight_update", "sgd_update", 10240),
        )
    ]
    changes = {"tensors": tensors, "operators": operators, "model": "net", **changes}
    return Plan.from_json(json.dumps(document(**changes)))


@pytest.fixture
def page(browser, tmp_path):
    """A function that opens a page; checks at the end of the test that the page had no errors."""

    def show(text):
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        browser.view()
        browser.open(path)
        return browser

    yield show
    assert browser.errors == []
    assert browser.requests == [f"file://{tmp_path}/page.html"]


def texts(browser, selector):
    return browser.run(
        f"[...document.querySelectorAll({selector!r})].filter((e) => e.checkVisibility())"
        ".map((e) => e.textContent)"
    )


def click(browser, selector, number=0):
    browser.run(f"document.querySelectorAll({selector!r})[{number}].click()")


def type_into(browser, selector, text, event="input"):
    browser.run(
        f"(() => {{ const e = document.querySelector({selector!r}); e.value = {json.dumps(text)};"
        f" e.dispatchEvent(new Event({event!r})); }})()"
    )


def value_of(browser, script, expression):
    """The value of an expression with the functions of one of the page's scripts."""
    text = (PAGE / script).read_text(encoding="utf-8")
    return browser.run(f"(() => {{ {text}\nreturn {expression}; }})()")


def choose(browser, view):
    click(browser, f"#tab-{view}")


def cells(browser, view):
    """The rows of a table."""
    return browser.run(
        f"[...document.querySelectorAll('#{view} tbody tr')].map((row) => "
        "[...row.cells].map((cell) => cell.textContent))"
    )


def test_layers_unfold_and_add_up(page):
    plan = net()
    browser = page(render_html(plan))
    rows = texts(browser, "#tree .name")
    assert rows == ["data", "net 2 layers", "fc0", "fc1", NASTY]
    layers = {layer.name: layer for layer in layers_of(plan)}
    for label, name in (("fc0", "net_fc0"), ("fc1", "net_fc1")):
        numbers = browser.run(
            "[...[...document.querySelectorAll('#tree .row')].find((row) => "
            f"row.querySelector('.name').textContent === {label!r}).querySelectorAll('.number')]"
            ".map((e) => e.textContent)"
        )
        layer = layers[name]
        ways = (layer.fetched_bytes.get(each, 0) for each in DIRECTIONS)
        sums = (*ways, layer.total_bytes, layer.worker_bytes, layer.parameter_bytes)
        assert numbers == [format_bytes(count) for count in sums]
    click(browser, "#tree .row", 2)
    assert texts(browser, "#tree .leaf .name") == [
        "net_fc0_fwd FullyConnected, forward",
        "net_fc0_weight_update sgd_update, update",
        f"net_fc0_weight 8 {TIMES} 6, parameter",
        f"net_fc0_fwd 8 {TIMES} 8",
        f"net_fc0_weight_update 8 {TIMES} 6",
    ]
    click(browser, "#fold")
    assert texts(browser, "#tree .name") == ["data", "net 2 layers", NASTY]
    type_into(browser, "#tree-order", "fetched", "change")
    assert texts(browser, "#tree .name")[0] == "net 2 layers"


def test_colours_show_bytes_or_memory(page):
    browser = page(render_html(net()))

    def heat():
        rows = browser.run(
            "[...document.querySelectorAll('#tree .block')].map((row) => "
            "[row.querySelector('.name').textContent, row.style.getPropertyValue('--heat')])"
        )
        return {name: float(value) for name, value in rows}

    fetched = heat()
    assert fetched["fc1"] == 1
    assert fetched["fc0"] == pytest.approx(3072 / (512 + 10240))
    type_into(browser, "#metric", "held", "change")
    layers = {layer.name: layer.worker_bytes for layer in layers_of(net())}
    assert heat()["fc0"] == pytest.approx(layers["net_fc0"] / layers["net_fc1"])


def test_bars_have_one_scale(page):
    browser = page(render_html(net()))
    layers = {layer.name: layer.total_bytes for layer in layers_of(net())}
    most = layers["net_fc0"] + layers["net_fc1"]
    assert texts(browser, ".scale span") == ["0", format_bytes(most)]
    shares = browser.run(
        "[...document.querySelectorAll('#tree .block')].map((row) => "
        "[row.querySelector('.name').textContent, "
        "row.querySelector('.bar').style.getPropertyValue('--share')])"
    )
    assert float(dict(shares)["fc1"]) == pytest.approx(layers["net_fc1"] / most)


CHAIN = """
import tofu
from mxnet.gluon import nn
from tofu.plans.render.html import render_html
net = nn.HybridSequential(prefix="net_")
with net.name_scope():
    net.add(nn.Dense(32, in_units=64, activation="relu"), nn.Dense(16, in_units=32))
net.initialize()
plan = tofu.plan(net, (16, 64), workers=4)
page = render_html(plan.details, graph=plan.problem.graph, with_prices=True)
open("plan.html", "w").write(page)
print(plan.explain("net_dense0_weight"))
"""


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """The page of a real net, and the output of --explain for its first weight."""
    pytest.importorskip("mxnet")
    folder = tmp_path_factory.mktemp("chain")
    ran = subprocess.run(
        [sys.executable, "-c", CHAIN], cwd=folder, capture_output=True, text=True, check=True
    )
    return (folder / "plan.html").read_text(), ran.stdout


def test_the_graph_shows_what_flows_and_opens(page, chain):
    browser = page(chain[0])
    click(browser, "#fold")
    choose(browser, "graph")
    assert [name.split()[-1] for name in texts(browser, "#graph .node-name")] == ["data", "net"]
    browser.run("document.querySelector('#graph .node.opens').dispatchEvent(new Event('click'))")
    opened = texts(browser, "#graph .node-name")
    assert {"dense0", "dense1"} <= {name.split()[-1] for name in opened}
    flows = browser.run(
        "[...document.querySelectorAll('#graph .flow-text')].map(e => e.lastChild.data)"
    )
    assert any(text.startswith("4.0 KiB, cut ") for text in flows), flows  # the data


def chained(layers):
    """A plan of layers in a row, each with a weight and a mask that is made from nothing."""
    tensors, operators, nodes = [], [], []

    def tensor(node, shape):
        tensors.append({"node": node, "output": 0, "shape": shape, "dtype": 0, "cuts": [0, -1]})

    tensor("data", [8, 4])
    nodes.append(("data", "null", []))
    for i, width in enumerate(layers):
        before = f"net_fc{i - 1}_fwd" if i else "data"
        for node, shape, op, reads in (
            (f"net_fc{i}_weight", [width, 4], "null", []),
            (f"net_mask{i}", [8, 4], "ones", []),
            (f"net_twice{i}", [8, 4], "double", [f"net_mask{i}"]),
            (f"net_fc{i}_fwd", [8, 4], "fc", [before, f"net_fc{i}_weight", f"net_twice{i}"]),
        ):
            tensor(node, shape)
            nodes.append((node, op, reads))
            if op != "null":
                operators.append({"node": node, "op": op, "cuts": ["b", None], "bytes": 8})
        tensor(f"net_fc{i}_weight_update", [width, 4])
        operators.append(
            {"node": f"net_fc{i}_weight_update", "op": "sgd", "cuts": ["b", None], "bytes": 0}
        )
    plan = net(tensors=tensors, operators=operators)
    places = {name: at for at, (name, _, _) in enumerate(nodes)}

    class Node(NamedTuple):
        name: str
        sources: list

    graph = SimpleNamespace(
        nodes=[Node(name, [(places[each], 0) for each in reads]) for name, _, reads in nodes]
    )
    return render_html(plan, graph=graph)


def boxes(browser):
    """The texts of each box of the graph, without titles."""
    return browser.run(
        "[...document.querySelectorAll('#graph .node')].map((node) => "
        "[...node.querySelectorAll('text')].map((e) => e.lastChild.data))"
    )


def test_boxes_of_the_graph_hold_weights_and_what_is_made_from_nothing(page):
    browser = page(chained([4, 6]))
    choose(browser, "graph")
    assert boxes(browser) == [
        ["data", "fetches 0 bytes"],
        ["fc0", "fetches 8 bytes", f"weight 4{TIMES}4, cut 0 -", "net_twice0 128 bytes"],
        ["fc1", "fetches 8 bytes", f"weight 6{TIMES}4, cut 0 -", "net_twice1 128 bytes"],
    ]


def test_alike_blocks_of_the_graph_stand_in_one_box_until_a_click(page):
    browser = page(chained([4, 4, 4, 4, 6]))
    choose(browser, "graph")
    assert [texts[0] for texts in boxes(browser)] == ["data", "fc0", "fc4"]
    assert boxes(browser)[1][-1] == f"{TIMES} 4"
    flows = [text.partition(":")[0] for text in texts(browser, "#graph .flow-text")]
    assert sum("to the next" in text for text in flows) == 1 and len(flows) == 3
    times = "document.querySelector('#graph .node-times')"
    browser.run(f"{times}.dispatchEvent(new Event('click'))")
    names = ["data", "fc0", "fc1", "fc2", "fc3", "fc4"]
    assert [texts[0] for texts in boxes(browser)] == names
    click(browser, "#graph .controls button", 1)
    assert [texts[0] for texts in boxes(browser)] == ["data", "fc0", "fc4"]


def test_lines_of_the_graph_pass_beside_blocks(page, chain):
    """Three blocks side by side, with lines from each past two ranks, and one that goes back."""
    found = value_of(
        page(chain[0]),
        "graph.js",
        """(() => {
          const at = (rank, place) => ({ x: 284 * place, y: 120 * rank, rank, height: 46,
            bottom: 120 * rank + 46 });
          const nodes = [0, 1, 2].flatMap((rank) => [0, 1, 2].map((place) => at(rank, place)));
          const edges = [0, 1, 2].map((place) => ({ from: nodes[place], to: nodes[6 + place] }));
          edges.push({ from: nodes[8], to: nodes[3] });
          return { nodes, texts: lanesOf(edges, 852).map((lane) => lane.at),
            paths: lanesOf(edges, 852).map((lane) => lane.path) };
        })()""",
    )
    for path in found["paths"]:
        x, y = map(float, re.match(r"M([\d.]+),([\d.]+)", path).groups())
        for way, end in re.findall(r"([HV])([\d.]+)", path):
            to = (float(end), y) if way == "H" else (x, float(end))
            for node in found["nodes"]:
                is_beside = max(x, to[0]) <= node["x"] or min(x, to[0]) >= node["x"] + 240
                is_between = max(y, to[1]) <= node["y"] or min(y, to[1]) >= node["y"] + 46
                assert is_beside or is_between, (path, node)
            x, y = to
    heights = sorted(y for _, y in found["texts"])
    assert min(b - a for a, b in zip(heights, heights[1:])) >= 12


def test_a_pin_has_its_price(page, chain):
    text, explained = chain
    browser = page(text)
    browser.run("page.open(page.tensors.find((tensor) => tensor.name === 'net_dense0_weight'))")
    options = browser.run("[...document.querySelectorAll('.pin option')].map((e) => e.text)")
    more = [
        int(found.replace(",", "")) for found in re.findall(r"\(\+([\d,]+)\)$", explained, re.M)
    ]
    priced = [option for option in options if "(" in option]
    assert priced and [option.partition(" (")[2] for option in priced] == [
        f"+{format_bytes(count)})" for count in more
    ]
    browser.run(
        "(() => { const choice = document.querySelector('.pin select'); "
        "choice.selectedIndex = [...choice.options].findIndex((o) => o.text.includes('(+')); "
        "choice.dispatchEvent(new Event('change')); })()"
    )
    assert texts(browser, ".pin [role=status]") == [f"costs +{format_bytes(more[0])}"]


def test_the_tree_by_keyboard(page):
    browser = page(render_html(net()))
    browser.run("document.querySelector('#tree [tabindex=\"0\"]').focus()")

    def at():
        return browser.run("document.activeElement.querySelector('.name').textContent")

    browser.key("ArrowDown")
    browser.key("ArrowDown")
    assert at() == "fc0"
    browser.key("ArrowRight")
    assert at() == "fc0" and len(texts(browser, "#tree .leaf")) == 5
    browser.key("ArrowRight")
    assert at().startswith("net_fc0_fwd")
    browser.key("Enter")
    assert texts(browser, "#details-title") == ["net_fc0_fwd"]
    browser.key("Escape")
    assert texts(browser, "#details-title") == []
    assert at().startswith("net_fc0_fwd")  # the former place
    browser.key("ArrowLeft")
    assert at() == "fc0"
    browser.key("ArrowLeft")
    assert texts(browser, "#tree .leaf") == []
    browser.key("/")
    assert browser.run("document.activeElement.id") == "search"


def test_search_finds_words_patterns_and_kinds(page):
    browser = page(render_html(net()))
    found = {
        "fc1 update": ["net_fc1_weight_update"],
        "*_weight": ["net_fc0_weight", "net_fc1_weight"],
        "PARAMETER": ["net_fc0_weight", "net_fc1_weight"],
        "[0-9": [],
    }
    choose(browser, "tensors")
    for text, names in found.items():
        type_into(browser, "#search", text)
        assert [row[0] for row in cells(browser, "tensors")] == names
    assert texts(browser, "#found") == ["0 found"]
    type_into(browser, "#search", "sgd_update")
    assert [row[0] for row in cells(browser, "operators")] == [
        "net_fc0_weight_update", "net_fc1_weight_update",
    ]  # fmt: skip
    choose(browser, "layers")
    assert texts(browser, "#tree .name") == ["net 2 layers", "fc0", "fc1"]
    type_into(browser, "#search", "nothing like it")
    assert texts(browser, "#tree-none") == ["Nothing fits the search."]


def test_tables_sort_by_any_column(page):
    browser = page(render_html(net()))
    choose(browser, "operators")
    heads = texts(browser, "#operators th button")
    assert heads == ["operator", "kind", "direction", "split per step", "bytes fetched"]
    click(browser, "#operators th button", 4)
    assert [row[4] for row in cells(browser, "operators")] == [
        "10.0 KiB", "3.0 KiB", "512 bytes", "0 bytes",
    ]  # fmt: skip
    sort = "[...document.querySelectorAll('#operators th')].map((e) => e.ariaSort)"
    assert browser.run(sort)[4] == "descending"
    click(browser, "#operators th button", 4)
    assert cells(browser, "operators")[0][4] == "0 bytes"
    assert browser.run(sort)[4] == "ascending"
    click(browser, "#operators th button", 0)
    names = [row[0] for row in cells(browser, "operators")]
    assert names == sorted(names)


def test_long_tables_show_more_on_demand(page):
    tensors = [
        {"node": f"fc{i}_weight", "output": 0, "shape": [8, 6], "dtype": 0, "cuts": [0, 1]}
        for i in range(450)
    ]
    browser = page(render_html(net(tensors=tensors)))
    assert len(cells(browser, "tensors")) == 200
    choose(browser, "tensors")
    assert texts(browser, "#tensors .more") == ["show more (250 left)"]
    click(browser, "#tensors .more")
    assert len(cells(browser, "tensors")) == 450
    assert texts(browser, "#tensors .more") == []


def test_a_tensors_tiles_on_click(page):
    browser = page(render_html(net()))

    def show(name):
        browser.run(
            "[...document.querySelectorAll('#tensors .link')].find((e) => "
            f"e.textContent === {name!r}).click()"
        )
        titles = "[...document.querySelectorAll('.tile title')].map((e) => e.textContent)"
        fills = "[...document.querySelectorAll('.tile [fill]')].map((e) => e.getAttribute('fill'))"
        return browser.run(titles), browser.run(fills)

    colours = [worker_colour(worker, 4) for worker in range(4)]
    titles, fills = show("net_fc0_weight")
    assert titles == [
        "worker 0: [0:4, 0:3]", "worker 1: [0:4, 3:6]", "worker 2: [4:8, 0:3]",
        "worker 3: [4:8, 3:6]",
    ]  # fmt: skip
    assert fills == colours
    titles, fills = show("net_fc0_fwd")
    assert titles == ["workers 0, 1: [0:4, :]", "workers 2, 3: [4:8, :]"]
    assert fills == colours
    boxes = browser.run(
        "[...document.querySelectorAll('.tile .edge')].map((e) => ['x', 'y', 'width', 'height']"
        ".map((name) => Number(e.getAttribute(name))))"
    )
    assert boxes == [[0, 0, 320, 100], [0, 100, 320, 100]]
    click(browser, "#details details summary")
    owners = "[...document.querySelectorAll('#details td')].map((e) => e.textContent)"
    assert browser.run(owners)[:4] == ["worker 0", "[0:4, :]", "worker 1", "[0:4, :]"]


def test_unequal_tiles_and_what_can_be_pinned(page):
    tensor = {"node": "w", "output": 0, "shape": [7, 3], "dtype": 0, "cuts": [0, 0]}
    browser = page(render_html(net(tensors=[tensor], operators=[])))
    click(browser, "#tensors .link")
    titles = browser.run("[...document.querySelectorAll('.tile title')].map((e) => e.textContent)")
    assert titles == [
        "worker 0: [0:2, :]", "worker 1: [2:4, :]", "worker 2: [4:6, :]", "worker 3: [6:7, :]",
    ]  # fmt: skip
    assert f"4 {TIMES} 1 (2 or 1 of 7)" in texts(browser, "#details dd")
    assert f"84 bytes, {format_bytes(24)} on a worker" in texts(browser, "#details dd")
    for step, cut in ((0, 1), (1, 1)):
        browser.run(
            f"(() => {{ const e = document.querySelectorAll('.pin select')[{step}];"
            f" e.value = '{cut}'; e.dispatchEvent(new Event('change')); }})()"
        )
    assert browser.run("document.querySelector('.pin button').disabled")
    (why, _) = texts(browser, ".pin .note")
    assert why == "step 2: that dimension has fewer elements left than 2 parts"


def test_planes_of_tiles_stand_apart(page):
    steps = [{"parts": 2, "groups": 2**i, "bytes": 0} for i in range(3)]
    tensor = {"node": "w", "output": 0, "shape": [4, 4, 4], "dtype": 0, "cuts": [0, 1, 2]}
    plan = net(workers=8, parts=[2, 2, 2], steps=steps, tensors=[tensor], operators=[])
    browser = page(render_html(plan))
    click(browser, "#tensors .link")
    spans = browser.run(
        "[...document.querySelectorAll('.tile .edge')].map((e) => "
        "[Number(e.getAttribute('x')), Number(e.getAttribute('width'))])"
    )
    columns = sorted({(round(x, 3), round(x + width, 3)) for x, width in spans})
    assert [b[0] - a[1] for a, b in zip(columns, columns[1:])] == pytest.approx([0, 10, 0])
    assert (columns[0][0], columns[-1][1]) == pytest.approx((0, 320))


def test_more_workers_than_can_be_drawn(page):
    steps = [{"parts": 2, "groups": 2**i, "bytes": 0} for i in range(11)]
    tensor = {"node": "w", "output": 0, "shape": [2048], "dtype": 0, "cuts": [0] * 11}
    plan = net(workers=2048, parts=[2] * 11, steps=steps, tensors=[tensor], operators=[])
    browser = page(render_html(plan))
    click(browser, "#tensors .link")
    (body,) = texts(browser, "#details-body")
    assert "more tiles than can be seen" in body and "null" not in body
    assert texts(browser, "#details .tiles") == []


def test_pins_collect_into_a_command(page):
    browser = page(
        render_html(net(), command=("tofu plan --batch-size 8 --workers 4", "train.py --x '1 2'"))
    )
    assert texts(browser, "#command") == []

    def pin(name, *cuts):
        browser.run(
            "[...document.querySelectorAll('#tensors .link')].find((e) => "
            f"e.textContent === {json.dumps(name)}).click()"
        )
        for step, cut in enumerate(cuts):
            browser.run(
                f"(() => {{ const e = document.querySelectorAll('.pin select')[{step}];"
                f" e.value = '{cut}'; e.dispatchEvent(new Event('change')); }})()"
            )
        if browser.run("document.querySelector('.pin button').disabled"):
            return texts(browser, ".pin .note")[0]
        click(browser, ".pin button")
        (line,) = texts(browser, "#command")
        return shlex.split(line)

    before = ["tofu", "plan", "--batch-size", "8", "--workers", "4"]
    after = ["train.py", "--x", "1 2"]
    assert pin("net_fc0_weight", 0, 0) == [*before, "--pin", "net_fc0_weight=0", *after]
    pins = ["--pin", "net_fc0_weight=0,-1", "--pin", f"{NASTY}=0"]
    pin("net_fc0_weight", 0, -1)  # instead of the first
    assert pin(NASTY, 0, 0) == [*before, *pins, *after]
    click(browser, "#pin-list button")
    assert shlex.split(texts(browser, "#command")[0]) == [*before, *pins[2:], *after]
    click(browser, "#copy")
    browser.wait("document.querySelector('#copied').textContent !== ''")
    click(browser, "#pin-list button")
    assert texts(browser, "#pins") == []


def test_stages_are_shown_by_their_operator(page):
    """The page shows words and searches both; a pin needs the tensor's name."""
    stage = {
        "node": "net_norm0_fwd_backward::mean_2", "output": 0, "shape": [8, 6], "dtype": 0,
        "cuts": [0, 0],
    }  # fmt: skip
    browser = page(render_html(net(tensors=[stage], operators=[])))
    for text in ("gradient, mean", "backward::mean"):
        type_into(browser, "#search", text)
        assert [row[0] for row in cells(browser, "tensors")] == ["net_norm0: gradient, mean 2"]
    browser.run("document.querySelector('#tensors .link').click()")
    assert texts(browser, "#details-title") == ["net_norm0: gradient, mean 2"]
    browser.run(
        "(() => { const e = document.querySelector('.pin select'); e.value = '1';"
        " e.dispatchEvent(new Event('change')); })()"
    )
    click(browser, ".pin button")
    assert "net_norm0_fwd_backward::mean_2=1,0" in texts(browser, "#command")[0]


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (1, [0, 1]),
        (700, [0, 200, 400, 600]),
        (1.6 * 2**20, [0, 0.5 * 2**20, 2**20, 1.5 * 2**20]),
        (7 * 2**30, [0, 2 * 2**30, 4 * 2**30, 6 * 2**30]),
    ],
)
def test_ticks_are_round(page, most, ticks):
    assert value_of(page(render_html(net())), "data.js", f"roundBytes({most})") == ticks


def test_memory_over_a_step(page):
    nodes = ("net_fc0_fwd@0", "net_fc1_fwd@0", "net_fc0_fwd_backward@0")
    held = (Held(nodes[1], 0, 2048, "tensor"), Held("", 0, 1024, "fetched"))
    between = {"activations": (1024, 2048, 2048), "fetch_buffers": (0, 1024, 0)}
    peak = Peak(0, {"parameters": 1024}, nodes, between, held, 4096)
    plan = dataclasses.replace(net(), peak=peak, bytes_per_worker={"parameters": 1024})
    browser = page(render_html(plan))
    choose(browser, "memory")
    assert texts(browser, ".reading") == ["operator 2 of 3, net_fc1_fwd: 4.0 KiB"]
    type_into(browser, "#memory input", "2")
    assert texts(browser, ".reading") == ["operator 3 of 3, net_fc0_fwd_backward: 3.0 KiB"]
    legend = ["parameters 1.0 KiB", "activations 2.0 KiB", "fetch buffers 0 bytes"]
    assert texts(browser, "#memory .legend > span") == legend
    heights = browser.run(
        "[...document.querySelectorAll('#memory .chart path')].map((e) => e.getBBox().height)"
    )
    assert heights[1] == pytest.approx(2 * heights[0], rel=0.01)
    assert texts(browser, "#memory .held td") == [
        "net_fc1_fwd", "", "", "2.0 KiB", "(copies)", "", "fetched", "1.0 KiB",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "lines", "told"), [(8192, 1, []), (2**20, 0, ["the limit, 1.0 MiB, lies above"])]
)
def test_a_limit_far_above_is_only_named(page, limit, lines, told):
    between = {"activations": (1024, 2048)}
    peak = Peak(0, {"parameters": 1024}, ("net_fc0_fwd@0", "net_fc1_fwd@0"), between, (), 4096)
    browser = page(render_html(dataclasses.replace(net(), peak=peak), limit_bytes=limit))
    choose(browser, "memory")
    assert len(texts(browser, "#memory .chart .limit")) == lines
    assert texts(browser, "#memory .legend > span")[2:] == told


def test_both_plans_of_a_comparison(page):
    first = net()
    changed = [dict(each) for each in json.loads(first.to_json())["tensors"]]
    changed[1]["cuts"] = [1, 0]
    operators = [dict(each) for each in json.loads(first.to_json())["operators"]]
    operators[0]["bytes"] = 1024
    second = net(tensors=changed[:-1], operators=operators)
    browser = page(render_html_difference(first, second, ("a.plan", NASTY)))
    assert texts(browser, "#tree-head .number") == [
        "fetched: a.plan",
        f"fetched: {NASTY}",
        "change",
    ]
    click(browser, "#different")
    choose(browser, "tensors")
    assert [row[0] for row in cells(browser, "tensors")] == ["net_fc0_weight", NASTY]
    assert cells(browser, "tensors")[1][3:5] == ["4", "(none)"]
    choose(browser, "operators")
    (row,) = cells(browser, "operators")
    assert row[-3:] == ["3.0 KiB", "1.0 KiB", "-2.0 KiB"]
    choose(browser, "tensors")
    click(browser, "#tensors .link")
    assert texts(browser, "#details h3")[:2] == ["a.plan", NASTY]
    assert len(texts(browser, "#details .tiles")) == 2


@pytest.mark.parametrize("width", [400, 800, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out_and_texts_are_readable(page, tmp_path, width, scheme):
    """The page itself never scrolls sideways, and texts contrast with their background."""
    section = Section("Tensor w", "Because.", ("cut", "bytes"), (("dimension 0", "96"),))
    browser = page(render_html(net(), [section]))
    browser.view(width, 900, scheme=scheme)
    for view in ("layers", "graph", "tensors", "operators", "memory", "explained"):
        choose(browser, view)
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth"), view
    choose(browser, "layers")
    browser.screenshot(tmp_path / "layers.png")  # for people: pytest keeps the folder
    assert (tmp_path / "layers.png").read_bytes()[:4] == b"\x89PNG"
    overlaps = browser.run(
        "(() => { const rows = [...document.querySelectorAll('#tree .row')];"
        " return rows.some((row, i) => i && row.getBoundingClientRect().top <"
        " rows[i - 1].getBoundingClientRect().bottom - 1); })()"
    )
    assert not overlaps
    colours = browser.run(
        "['--back', '--text', '--faint', '--panel'].map((name) => "
        "getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
    )
    back, text, faint, panel = map(_luminance, colours)
    for behind in (back, panel):
        assert _contrast(text, behind) > 7
        assert _contrast(faint, behind) > 4.5  # WCAG's limit for texts


def _luminance(colour):
    digits = colour[1:]
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one, other):
    low, high = sorted((one, other))
    return (high + 0.05) / (low + 0.05)
