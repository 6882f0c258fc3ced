"""Plans within memory limits, the frontier, and the output of tofu frontier."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

pytest.importorskip("mxnet")

from tofu.cli import main
from tofu.cli.frontier import render
from tofu.errors import ConfigError, MemoryLimitError, PlanError
from tofu.mx.model.sources import from_model
from tofu.planner import decide, sweep
from tofu.planner.decide import plan_problem
from tofu.planner.frontier import Point, frontier, turning_point, unbeaten
from tofu.planner.limits import held_bytes
from tofu.planner.prediction import step_predictor
from tofu.planner.rivals import rivals_of
from tofu.planner.search import plan_graph, search
from tofu.planner.sweep import Measure
from tofu.planner.wish import Wish
from tofu.plans import Plan, SearchOptions
from tofu.plans.machine_files import machine_text

from ..equality.mixed_machine import mixed_machine
from ..plans.documents import document

MIB = 2**20


def plan_within(problem, limit, options=None, *, exact=True):
    wish = Wish(options or SearchOptions(), limit, recompute="none", exact=exact)
    return plan_problem(problem, wish)[1]


def mlp(workers=8):
    return from_model("mlp", batch_size=64, optimizer="sgd", workers=workers)


def made(held, cost, name="a plan", seconds=None, is_rival=False):
    text = json.dumps(
        document(total_bytes=cost, lower_bound_bytes=1, bytes_per_worker={"parameters": held})
    )
    return Point(name, Plan.from_json(text), seconds, is_rival)


@pytest.mark.parametrize("exact", [False, True])
def test_a_plan_within_a_limit_fits_and_costs_more(exact):
    problem = mlp()
    free = SearchOptions(allow_replication=True)
    best = plan_within(problem, 1 << 40, free, exact=exact)
    cut = plan_within(problem, 1 << 40, SearchOptions(), exact=exact)
    assert best.total_bytes < cut.total_bytes
    assert held_bytes(best) > held_bytes(cut)
    assert best.memory == ("exact" if exact else "estimate")
    limit = (held_bytes(best) + held_bytes(cut)) // 2
    found = plan_within(problem, limit, free, exact=exact)
    assert held_bytes(found) <= limit
    assert best.total_bytes < found.total_bytes <= cut.total_bytes
    assert best.lower_bound_bytes <= found.lower_bound_bytes <= found.total_bytes


def test_no_plan_says_what_the_least_holds():
    problem = mlp(2)
    least = held_bytes(plan_within(problem, 1 << 40, exact=False))
    for limit in (1, MIB, least - least // 50):
        with pytest.raises(MemoryLimitError) as error:
            plan_within(problem, limit, SearchOptions(allow_replication=True), exact=False)
        told = str(error.value)
        assert "over 2 workers" in told and "the least that one holds is 1.0 GiB" in told


def test_what_the_search_does_not_count_lowers_the_limit_of_tiles(monkeypatch):
    asked = []

    def search(problem, options, **_):
        asked.append(options.memory_limit_bytes)
        tiles = 1000 if options.memory_limit_bytes is None else options.memory_limit_bytes
        plan = made(tiles + 50, 10).plan
        return types.SimpleNamespace(problem=problem, read=lambda: plan)

    monkeypatch.setattr(decide, "search", search)
    found = plan_within(mlp(2), 900, exact=False)
    assert asked == [None, 900, 850]
    assert held_bytes(found) == 900


def test_unbeaten_points_hold_less_or_cost_less():
    points = [made(10, 90), made(20, 50), made(20, 60), made(30, 50), made(40, 20), made(50, 30),
              made(60, 20, is_rival=True)]  # fmt: skip
    assert [(p.held_bytes, p.cost) for p in unbeaten(points)] == [(10, 90), (20, 50), (40, 20)]
    rival = made(20, 45, is_rival=True)
    assert unbeaten([*points, rival])[1] is rival
    assert [p.cost for p in unbeaten([made(10, 5, seconds=2.0), made(20, 9, seconds=1.0)])] == [
        2,
        1,
    ]


def test_the_turning_point_is_the_sharpest():
    kept = [made(10, 100), made(20, 40), made(30, 35), made(100, 20)]
    assert turning_point(kept) is kept[1]
    assert turning_point(kept[:2]) is None
    later = [made(1, 100), made(10, 60), made(20, 20), made(100, 0)]
    assert turning_point(later) is later[2]


def test_a_frontier_is_made_of_plans_within_limits():
    rivals = rivals_of(["spartan"], SearchOptions())
    points = list(frontier(mlp(), SearchOptions(), limits=4, rivals=rivals))
    kept = unbeaten(points)
    assert len(kept) >= 2
    costs = [point.plan.total_bytes for point in kept]
    assert costs == sorted(costs, reverse=True)
    assert [point.name for point in points if point.is_rival] == ["spartan"]
    most = kept[0].held_bytes
    fewer = frontier(mlp(), SearchOptions(), limits=4, most_bytes=most)
    assert {point.held_bytes for point in fewer} == {most}


def test_a_rival_without_a_plan_has_no_point(monkeypatch):
    def refuse():
        raise PlanError("nothing divides")

    monkeypatch.setattr(sweep, "begin_search", lambda *_, **__: refuse)
    rivals = {"a rival": SearchOptions()}
    found = list(frontier(mlp(2), SearchOptions(), limits=1, rivals=rivals))
    assert found and not any(point.is_rival for point in found)


@pytest.mark.parametrize("workers", [2, 3])
def test_a_frontier_says_whether_it_is_complete(workers):
    problem = from_model("mlp", batch_size=64, optimizer="sgd", workers=workers)
    options = SearchOptions()
    whole = list(frontier(problem, options, limits=1000))
    part = list(frontier(problem, options, limits=1))
    assert all(point.is_proven for point in whole)
    assert not any(point.is_proven for point in part)
    assert len(part) < len(whole)
    tiles = [point.tile_bytes for point in whole]
    costs = [point.cost for point in whole]
    assert tiles == sorted(set(tiles)) and costs == sorted(set(costs), reverse=True)
    assert {point.cost for point in part} <= set(costs)
    assert costs[-1] == plan_graph(problem, SearchOptions(allow_replication=True)).total_bytes
    for form, told in (("text", "proven: no other plan"), ("json", '"complete": true')):
        assert told in render("mlp", whole, form) and told not in render("mlp", part, form)


def test_a_frontier_ends_with_the_plan_without_a_limit():
    problem = from_model("mlp", batch_size=64, optimizer="sgd", workers=4)
    points = list(frontier(problem, SearchOptions(), limits=8))
    free = SearchOptions(allow_replication=True)
    assert points[-1].cost == plan_graph(problem, free).total_bytes
    for point in points:  # a search within that much memory finds no worse plan
        limited = dataclasses.replace(free, memory_limit_bytes=point.tile_bytes)
        assert plan_graph(problem, limited).total_bytes <= point.cost


def test_rivals_are_what_other_systems_minimise():
    options = SearchOptions(objective="time", machine="p2.8xlarge")
    found = rivals_of(["data-parallel", "tofu", "optcnn", "spartan"], options)
    assert list(found) == ["data-parallel", "tofu", "optcnn", "spartan"]
    assert found["data-parallel"].mode == "data-parallel"
    assert (found["tofu"].mode, found["tofu"].objective) == ("recursion", "bytes")
    assert (found["optcnn"].objective, found["optcnn"].allow_replication) == ("time", True)
    assert found["optcnn"].memory_limit_bytes is None
    with pytest.raises(ConfigError, match="optcnn: it minimises the time"):
        rivals_of(["optcnn"], SearchOptions())
    with pytest.raises(ConfigError, match="no such search mode"):
        rivals_of(["optcn"], options)


# --- the command ------------------------------------------------------------------------------


def run(capsys, *args):
    with pytest.raises(SystemExit) as end:
        main.main(["frontier", "--quick", "--workers", "8", "--batch-size", "64", *args, "mlp"])
    told = capsys.readouterr()
    return end.value.code, told.out, told.err


def test_the_command_predicts_times_and_saves_the_last_plan(capsys, tmp_path):
    path = tmp_path / "best.plan"
    given = "--limits", "3", "--machine", "p2.8xlarge", "--rivals", "tofu,optcnn,mesh-tensorflow"
    status, told, _ = run(capsys, *given, "--format", "json", "--save", str(path))
    assert status == 0
    found = json.loads(told)
    assert (found["format"], found["version"], found["workers"]) == ("tofu-frontier", 1, 8)
    seconds = [point["step_seconds"] for point in found["frontier"]]
    assert seconds == sorted(seconds, reverse=True) and len(seconds) >= 2
    tofu, optcnn, mesh = found["rivals"]
    assert (tofu["name"], optcnn["name"], mesh["name"]) == ("tofu", "optcnn", "mesh-tensorflow")
    assert seconds[-1] < mesh["step_seconds"] < tofu["step_seconds"]
    assert optcnn["step_seconds"] == pytest.approx(seconds[-1], rel=0.05)
    assert tofu["tile_bytes"] is None
    assert any(point["tile_bytes"] for point in found["frontier"])
    assert str(found["frontier"][-1]["communicated_bytes"]) in path.read_text()


def test_a_limit_that_nothing_fits_is_one_line(capsys):
    status, _, told = run(capsys, "--memory", "1MiB")
    assert status == 2
    assert told == (
        "tofu: tofu frontier mlp: no plan over 8 workers fits in 1.0 MiB; tofu estimate mlp says "
        "which number would do\n"
    )


def test_a_symbol_file_has_shapes(capsys, tmp_path):
    import mxnet as mx

    path = tmp_path / "net.json"
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=64, name="fc")
    mx.sym.SoftmaxOutput(net, name="softmax").save(str(path))
    with pytest.raises(SystemExit) as end:
        main.main(["frontier", "--quick", "--workers", "2", "--shape", "data=8,32", str(path)])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("a worker holds  communicated")


def test_pictures_and_pages_are_whole():
    points = [made(10 * MIB, 90), made(20 * MIB, 50), made(40 * MIB, 20),
              made(41 * MIB, 21, "<data-parallel>", is_rival=True),
              made(41 * MIB, 21, "spartan", is_rival=True)]  # fmt: skip
    picture = render("a < b", points, "svg")
    tree = ElementTree.fromstring(picture)
    texts = [e.text for e in tree.iter() if e.tag.endswith("}text")]
    # Two rivals with the same dot share a label.
    assert {"a < b", "<data-parallel>, spartan", "turning point"} <= set(texts)
    assert len([e for e in tree.iter() if e.tag.endswith("}circle")]) == 5
    page = render("a < b", points, "html")
    assert "&lt;data-parallel&gt;" in page and "a < b" not in page
    assert not re.search(r'(href|src)="', page)
    text = render("net", points, "text").splitlines()
    assert text[2].endswith("a plan (turning point)") and text[-1].endswith("spartan")


def test_a_rival_that_is_on_the_frontier_hides_no_plan():
    points = [made(10 * MIB, 90), made(10 * MIB, 90, "same", is_rival=True)]
    tree = ElementTree.fromstring(render("net", points, "svg"))
    dots = [e for e in tree.iter() if e.tag.endswith("}circle")]
    assert [dot.get("class") for dot in dots] == ["rival", "kept"], "the last lies on top"
    assert float(dots[0].get("r")) > float(dots[1].get("r"))


def test_points_link_to_the_pages_of_their_plans(capsys, tmp_path):
    line = ["frontier", "--quick", "--workers=2", "--limits=2", "--rivals=spartan", "mlp"]
    with pytest.raises(SystemExit) as end:
        main.main([*line, "--batch-size=64", "--format=html", f"--pages={tmp_path / 'plans'}"])
    assert not end.value.code
    links = re.findall(r'<a href="([^"]+)">', capsys.readouterr().out)
    files = sorted(map(str, (tmp_path / "plans").iterdir()))
    assert files
    assert sorted(links) == sorted(2 * files)  # in the picture and in the table
    assert "Does it fit?" in Path(files[0]).read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        main.main([*line, "--pages=plans"])
    assert "--pages is for a page: give --format html, too" in capsys.readouterr().err


def test_ticks_are_round_and_rivals_far_away_are_only_named():
    points = [made(10 * MIB, 90, seconds=0.07), made(20 * MIB, 50, seconds=0.05),
              made(900 * MIB, 80, "far", seconds=0.06, is_rival=True)]  # fmt: skip
    tree = ElementTree.fromstring(render("net", points, "svg"))
    texts = {e.text for e in tree.iter() if e.tag.endswith("}text")}
    assert {"10 MiB", "15 MiB", "20 MiB", "50 ms", "60 ms", "70 ms"} <= texts
    assert {"beyond the picture", "far", "900.0 MiB, 60.000 ms"} <= texts
    assert len([e for e in tree.iter() if e.tag.endswith("}circle")]) == 2


LETTER = 7.2  # approximate width of a letter


def boxes_of(tree):
    """Name -> the box of its label: left, top, right and bottom."""
    labels = [e for e in tree.iter() if e.get("class") in ("rival", "kept") and e.text]
    places = {e.text: (float(e.get("x")), float(e.get("y"))) for e in labels if e.get("x")}
    return {text: (x, y - 9, x + LETTER * len(text), y + 3) for text, (x, y) in places.items()}


@pytest.mark.parametrize("seed", range(20))
def test_labels_lie_on_no_line_dot_or_label(seed):
    draw = random.Random(seed)
    kept = [made((10 + 4 * k) * MIB, 90 - 9 * k - draw.randrange(8)) for k in range(6)]
    rivals = [
        made(draw.randrange(9, 33) * MIB, draw.randrange(35, 99), name, is_rival=True)
        for name in ("tofu", "spartan", "equalchop", "mesh-tensorflow", "allrow-greedy")
    ]
    tree = ElementTree.fromstring(render("net", [*kept, *rivals], "svg"))
    boxes = boxes_of(tree)
    told = {name for text in boxes for name in text.split(", ")}
    assert told >= {rival.name for rival in rivals}
    line = next(e for e in tree.iter() if e.get("class") == "line").get("points")
    corners = [tuple(map(float, place.split(","))) for place in line.split()]
    dots = [(float(e.get("cx")), float(e.get("cy"))) for e in tree.iter() if e.get("cx")]
    on_line = [
        (a + (c - a) * k / 200, b + (d - b) * k / 200)
        for (a, b), (c, d) in zip(corners, corners[1:])
        for k in range(201)
    ]
    for text, (left, top, right, bottom) in boxes.items():
        hit = [(x, y) for x, y in [*dots, *on_line] if left < x < right and top < y < bottom]
        assert not hit, text
        over = [
            other for other, (a, b, c, d) in boxes.items()
            if other != text and left < c and a < right and top < d and b < bottom
        ]  # fmt: skip
        assert not over, text


def test_no_name_lies_on_what_is_told_of_rivals_far_away():
    points = [made(10 * MIB, 90, seconds=0.05), made(11 * MIB, 80, seconds=0.04),
              made(12 * MIB, 80, "near the corner", seconds=0.06, is_rival=True),
              made(900 * MIB, 80, "far", seconds=0.06, is_rival=True)]  # fmt: skip
    tree = ElementTree.fromstring(render("net", points, "svg"))
    places = {e.text: (float(e.get("x")), float(e.get("y"))) for e in tree.iter() if e.get("x")}
    x, y = places["near the corner"]
    told = [places[text] for text in ("beyond the picture", "far", "900.0 MiB, 60.000 ms")]
    assert len({at for at, _ in told}) == 1
    is_left = x + LETTER * len("near the corner") < told[0][0]
    assert is_left or min(abs(y - other) for _, other in told) >= 16


def test_a_page_says_what_a_plan_changes():
    def plan(cuts):
        found = document(total_bytes=cuts[1] + 10, lower_bound_bytes=1,
                         bytes_per_worker={"parameters": 30 - cuts[1]})  # fmt: skip
        tensor = next(each for each in found["tensors"] if len(each["shape"]) == 2)
        tensor["cuts"] = cuts
        return Point("a plan", Plan.from_json(json.dumps(found)))

    points = [plan([0, 1]), plan([0, 0])]
    page = render("net", points, "html")
    assert re.search(r"<p>2 plans over \d+ workers, each of which holds less or costs ", page)
    assert "1 tensor is cut otherwise, " in page and ": 0 0</td>" in page
    first, second = json.loads(render("net", points, "json"))["frontier"]
    assert first["changes"] == "" and second["changes"].startswith("1 tensor is cut otherwise")


def test_one_point_has_a_picture():
    assert "circle" in render("net", [made(10, 10)], "svg")


# --- tiles that differ --------------------------------------------------------------------------


def test_a_frontier_on_a_mixed_machine_gives_slower_devices_smaller_tiles(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(mixed_machine(4)))
    options = SearchOptions(objective="time", machine=str(path))
    problem = from_model("mlp", batch_size=512, optimizer="sgd", workers=8)
    measure = Measure(step_seconds=step_predictor(str(path), 8, None))
    points = list(frontier(problem, options, limits=2, measure=measure))
    fastest = unbeaten(points)[-1]
    by_speed = [point for point in points if point.name.endswith("tiles by speed")]
    assert min(by_speed, key=lambda point: point.step_seconds).plan.parts.are_equal is False
    assert not fastest.plan.parts.are_equal
    chosen = search(problem, dataclasses.replace(options, allow_replication=True))
    assert fastest.step_seconds <= 1.02 * chosen.simulation.step_seconds


def test_a_frontiers_bounds_fall_on_the_multiples_that_the_machine_likes(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps({**json.loads(machine_text("8xh100")), "tile_multiple": 8}))
    problem = from_model("mlp", batch_size=500, optimizer="sgd", workers=3)
    options = SearchOptions(objective="time", machine=str(path))
    points = list(frontier(problem, options, limits=2))
    assert {point.plan.parts.multiple for point in points} == {8}
    assert not any(point.is_proven for point in points)
