"""Plans of models by name, symbols and blocks, without running anything.

    import tofu

    plan = tofu.plan("mlp", workers=4)
    print(plan)
    plan.save("mlp.plan")

``tofu.plan`` is ``plan`` here (docs/plans.md).
"""

from .graph_plan import GraphPlan, plan

__all__ = ["GraphPlan", "plan"]
