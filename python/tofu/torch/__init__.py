"""PyTorch: plans modules with tofu's analysis and search, and trains them with torch.distributed.

    model = tofu.torch.parallelize(model, mesh, example_inputs)      # under torchrun
    print(tofu.torch.plan(model, example_inputs, mesh=(2, 4)))       # anywhere, runs nothing

docs/torch.md explains both. Only this package knows torch; nothing of MXNet is loaded.
"""

from __future__ import annotations

from tofu.torch.graphs.torch_plan import TorchPlan
from tofu.torch.graphs.traced import Traced
from tofu.torch.parallelize import parallelize, program_of
from tofu.torch.planning import plan
from tofu.torch.tiles.private_names import check_version
from tofu.torch.tiles.ranks import whole_batch
from tofu.torch.tracing.module_trace import trace

__all__ = ["TorchPlan", "Traced", "parallelize", "plan", "program_of", "trace", "whole_batch"]

check_version()
