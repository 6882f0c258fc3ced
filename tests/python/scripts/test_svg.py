"""Committed pictures are small: one path for each series, one line for each path."""

import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[3] / "docs" / "results"
PICTURE = """<?xml version="1.0" encoding="utf-8" standalone="no"?>
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="9pt" xmlns="http://www.w3.org/2000/svg">
 <g id="figure_1">
  <g id="patch_1"><path d="M 0.123456 1
L -2.00001 3
z
" style="fill: red"/></g>
  <g id="patch_2"><path d="M 4 5
" style="fill: red"/></g>
  <g id="patch_3"><path d="M 6 7" style="fill: red; opacity: 0.5"/></g>
  <g id="patch_4"><path d="M 8 9" style="fill: red; opacity: 0.5"/></g>
  <g clip-path="url(#a)"><use xlink:href="#tick" x="1.98765" style="stroke-width: 0.125"/></g>
  <g id="text_1"><text style="font: 8px">a <tspan x="1">b</tspan> &lt; c</text></g>
 </g>
</svg>
"""
SMALL = """<?xml version="1.0" encoding="utf-8"?>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="9pt">
 <path d="M 0.12 1 L -2 3 z M 4 5" style="fill: red" />
 <path d="M 6 7" style="fill: red; opacity: 0.5" />
 <path d="M 8 9" style="fill: red; opacity: 0.5" />
 <g clip-path="url(#a)">
  <use xlink:href="#tick" x="1.99" style="stroke-width: 0.125" />
 </g>
 <text style="font: 8px">a <tspan x="1">b</tspan> &lt; c</text>
</svg>
"""


def test_neighbours_of_one_style_become_one_path_on_one_line(import_script):
    compact = import_script("_svg").compact
    assert compact(PICTURE) == SMALL
    assert compact(SMALL) == SMALL


def test_a_line_with_dots_is_two_paths(import_script, tmp_path):
    pytest.importorskip("matplotlib")
    figures = import_script("_figures")
    pyplot = figures.pyplot_of("dots")
    figure, axes = pyplot.subplots()
    axes.set_axis_off()
    figures.line_with_dots(axes, range(100), range(100), label="", color="#123456")
    figures.save(figure, tmp_path / "dots.svg")
    picture = (tmp_path / "dots.svg").read_text()
    line, dots = re.findall(r'<path d="([^"]*)"[^>]*stroke: #123456', picture)
    assert line.count("M") == 1 and dots.count("M") == 100
    assert "<use" not in picture


@pytest.mark.parametrize("name", sorted(path.name for path in RESULTS.glob("*.svg")))
def test_committed_pictures_have_few_lines(name):
    text = (RESULTS / name).read_text(encoding="utf-8")
    assert text.count("\n") < 400
