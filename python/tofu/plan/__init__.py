"""Plans: makes, reads, saves and prints them.

The package can be called: ``tofu.plan("mlp", workers=4)`` is ``tofu.planning.plan``.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

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


class _CallablePackage(ModuleType):
    """Lets ``tofu.plan`` be both this package and the function that people expect there."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        # By name: the function belongs to a layer above, which this one must not import.
        return importlib.import_module("tofu.planning").plan(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
