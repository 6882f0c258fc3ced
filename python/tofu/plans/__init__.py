"""Plans as data: problems, options and plans, with their files; ``plans.render`` prints them."""

from .options import SearchOptions
from .plan import OperatorPlan, Plan, Step, TensorPlan
from .problem import Problem

__all__ = [
    "OperatorPlan",
    "Plan",
    "Problem",
    "SearchOptions",
    "Step",
    "TensorPlan",
]
