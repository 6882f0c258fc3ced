"""A plan, or two to compare, as one self-contained web page that fetches nothing.

The page holds the data as JSON (page_data.py) and JavaScript that shows it (page/*.js): layers
that unfold, tables to search and sort, tiles, memory over a step, and pins to collect.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from tofu import _core
from tofu.tables import PALETTE

from ..plan import Plan
from ..progress import stage
from .explain import Section
from .overview import Overview, overview
from .page_data import page_data
from .text import sentence, summary

__all__ = ["render_html", "render_html_difference", "worker_colour"]

_PAGE = Path(__file__).with_name("page")
# In the order in which the page includes them.
_SCRIPTS = (
    "data.js",
    "elements.js",
    "tiles.js",
    "tree.js",
    "graph.js",
    "tables.js",
    "memory.js",
    "main.js",
)


def render_html(
    plan: Plan,
    sections: Sequence[Section] = (),
    *,
    graph: Optional[_core.Graph] = None,
    command: tuple[str, str] = ("", ""),
    step: Optional[Section] = None,
    limit_bytes: Optional[int] = None,
    serial_bytes: int = 0,
    with_prices: bool = False,
) -> str:
    """The plan as an HTML document.

    Args:
        plan: the plan.
        sections: explanations of the cuts of tensors and operators.
        graph: its graph, to show what each operator reads.
        command: the command line that plans it again, before and after the pins.
        step: the times of a predicted and a measured step.
        limit_bytes: what a worker may hold; None: no limit is known.
        serial_bytes: what one device alone would hold, an estimate; 0: unknown.
        with_prices: whether to find the price of pins of the largest variables, which may take
            minutes.
    """
    title = f"Plan of {plan.model or f'graph {plan.graph_hash}'} over {plan.workers} workers"
    with stage("writing the page"):
        data = page_data([("", plan)], graph, with_prices=with_prices)
        data["command"] = _command(command, plan.workers)
        data["limit"] = limit_bytes
        head = overview(
            plan,
            _colours(plan.workers),
            data["command"],
            limit_bytes=limit_bytes,
            serial_bytes=serial_bytes,
        )
        return _render(title, [("", plan)], data, sections, step, head)


def render_html_difference(first: Plan, second: Plan, names: tuple[str, str]) -> str:
    """Two plans and their differences as an HTML document.

    Args:
        first: a plan.
        second: another one.
        names: the plans' names on the page.
    """
    title = f"Plans {names[0]} and {names[1]}"
    with stage("writing the page"):
        plans = list(zip(names, (first, second)))
        data = page_data(plans)
        data["command"] = _command(("", ""), max(first.workers, second.workers))
        return _render(title, plans, data)


def _command(command: tuple[str, str], workers: int) -> tuple[str, str]:
    before, after = command
    return before or f"tofu plan --workers {workers}", after or "SCRIPT|MODEL"


def _colours(workers: int) -> list[str]:
    return [worker_colour(worker, workers) for worker in range(workers)]


def _render(
    title: str,
    plans: Sequence[tuple[str, Plan]],
    data: dict[str, Any],
    sections: Sequence[Section] = (),
    step: Optional[Section] = None,
    head: Optional[Overview] = None,
) -> str:
    import jinja2
    import markupsafe

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGE), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    data["colours"] = _colours(max(plan.workers for _, plan in plans))
    return environment.get_template("page.html").render(
        title=title,
        summaries=[
            (name, sentence(plan, has_limit=data.get("limit") is not None), summary(plan))
            for name, plan in plans
        ],
        sections=sections,
        step=step,
        head=head,
        style=markupsafe.Markup(PALETTE + (_PAGE / "page.css").read_text(encoding="utf-8")),
        data=markupsafe.Markup(_in_script(data)),
        script=markupsafe.Markup(
            "\n".join((_PAGE / name).read_text(encoding="utf-8") for name in _SCRIPTS)
        ),
    )


def _in_script(data: Any) -> str:
    """JSON that cannot end the element that holds it, whatever the names of a net are."""
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def worker_colour(worker: int, workers: int) -> str:
    """A different colour for every worker, as "#rrggbb".

    >>> worker_colour(0, 8)
    '#da7a7a'
    """
    import colorsys

    red, green, blue = colorsys.hls_to_rgb(worker / workers, 0.7 if worker % 2 else 0.665, 0.565)
    return "#" + "".join(f"{round(255 * part):02x}" for part in (red, green, blue))
