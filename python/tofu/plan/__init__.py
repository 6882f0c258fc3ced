"""Plans: making them, reading them, printing them."""

from .compiler import Compiled, compile_graph, observe, plan_graph
from .plan import OperatorPlan, Plan, Step, TensorPlan

__all__ = [
    "Compiled",
    "OperatorPlan",
    "Plan",
    "Step",
    "TensorPlan",
    "compile_graph",
    "observe",
    "plan_graph",
]
