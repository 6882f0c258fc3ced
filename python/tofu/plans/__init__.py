"""Plans as data: reads and saves them; ``plans.render`` prints them."""

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
]
