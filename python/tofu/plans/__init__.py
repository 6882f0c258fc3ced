"""Plans as data: problems, options and plans, with their files and pictures."""

from .options import SearchOptions
from .plan import OperatorPlan, Plan, Step, TensorPlan
from .problem import Problem
from .render.html import render_html
from .render.text import render_text

__all__ = [
    "OperatorPlan",
    "Plan",
    "Problem",
    "SearchOptions",
    "Step",
    "TensorPlan",
    "render_html",
    "render_text",
]
