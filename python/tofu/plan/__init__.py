"""Plans: makes, reads, saves and prints them."""

from .compiler import Compiled, Problem, compile_graph, intercept, observe, plan_graph
from .options import SearchOptions
from .plan import OperatorPlan, Plan, Step, TensorPlan
from .render.html import render_html
from .render.text import render_text

__all__ = [
    "Compiled",
    "OperatorPlan",
    "Plan",
    "Problem",
    "SearchOptions",
    "Step",
    "TensorPlan",
    "compile_graph",
    "intercept",
    "observe",
    "plan_graph",
    "render_html",
    "render_text",
]
