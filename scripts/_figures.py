"""Shared by the scripts that draw: their options, raw data and pictures."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional

from _common import write
from _svg import compact

__all__ = ["draw_again", "line_with_dots", "parser_of", "pyplot_of", "save", "write_and_draw"]

Document = dict[str, Any]
Draw = Callable[[Document, Path], None]


def parser_of(description: Optional[str], smoke: str = "reduced models") -> argparse.ArgumentParser:
    """A parser with the options that the scripts of all figures have.

    Args:
        description: a docstring, whose first line becomes the help.
        smoke: the models that --smoke plans, in words.
    """
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help=smoke)
    parser.add_argument("--output", type=Path, help="folder for the raw data and the picture")
    parser.add_argument("--draw", type=Path, metavar="JSON", help="only draw, from this raw data")
    return parser


def draw_again(args: argparse.Namespace, draw: Draw) -> bool:
    """Draw the raw data that --draw names; return whether it names any."""
    if args.draw is None:
        return False
    draw(json.loads(args.draw.read_text(encoding="utf-8")), args.draw.with_suffix(".svg"))
    return True


def write_and_draw(folder: Optional[Path], name: str, document: Document, draw: Draw) -> None:
    """Write raw data and its picture into the folder of --output, if there is one."""
    if folder is None:
        return
    path = write(folder, name, document)
    # From the file, so --draw makes the same picture.
    draw(json.loads(path.read_text(encoding="utf-8")), path.with_suffix(".svg"))
    print(f"written: {path}, {path.with_suffix('.svg')}")


def pyplot_of(name: str) -> Any:
    """matplotlib.pyplot, set to write the same SVG file whenever it draws the same figure."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update(
        {"svg.hashsalt": name, "svg.fonttype": "none", "path.simplify": False}
    )
    from matplotlib import pyplot

    return pyplot


def line_with_dots(
    axes: Any, xs: Sequence[float], ys: Sequence[float], *, label: str, **style: Any
) -> None:
    """Plot a line with a dot at every point: two paths, however many points there are."""
    (line,) = axes.plot(xs, ys, "-", label=label, **style)
    starts = [number for x in xs for number in (x, x, float("nan"))]
    ends = [number for y in ys for number in (y, y, float("nan"))]
    axes.plot(starts, ends, "-", color=line.get_color(), linewidth=5, solid_capstyle="round")


def save(figure: Any, path: Path, **options: Any) -> None:
    """Save a figure of matplotlib as a small SVG file without a date, and forget it."""
    from matplotlib import pyplot

    text = io.StringIO()
    unsaid = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", metadata=unsaid, **options)
    path.write_text(compact(text.getvalue()), encoding="utf-8")
    pyplot.close(figure)
