"""Plans as data: reads, saves and prints them."""

from .compiler import (
    Compiled,
    PlanFrontier,
    Problem,
    compile_graph,
    intercept,
    observe,
    plan_frontier,
    plan_graph,
    plan_refined,
)
from .options import SearchOptions
from .plan import OperatorPlan, Plan, Step, TensorPlan
from .render.html import render_html
from .render.text import render_text

__all__ = [
    "Compiled",
    "OperatorPlan",
    "Plan",
    "PlanFrontier",
    "Problem",
    "SearchOptions",
    "Step",
    "TensorPlan",
    "compile_graph",
    "intercept",
    "observe",
    "plan_frontier",
    "plan_graph",
    "plan_refined",
    "render_html",
    "render_text",
]
