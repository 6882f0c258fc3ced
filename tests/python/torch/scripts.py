"""Runs a script plainly and distributed over the ranks, and compares what it returns."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.distributed as dist

from tofu.torch import parallelize

Wrap = Callable[..., Any]


def compare(*scripts: Callable[[Wrap], dict[str, Any]]) -> None:
    """Run scripts plainly and distributed; tensors, numbers and None are the same."""
    mesh = (dist.get_world_size(),)
    for script in scripts:
        torch.manual_seed(0)
        plain = script(lambda model, *_, **__: model)
        torch.manual_seed(0)
        parts = script(lambda model, *args, **named: parallelize(model, mesh, args, named))
        assert plain.keys() == parts.keys()
        for key, value in plain.items():
            where = f"{script.__qualname__}: {key}"
            if isinstance(value, torch.Tensor):
                found = parts[key]
                found = found.full_tensor() if hasattr(found, "full_tensor") else found
                torch.testing.assert_close(found, value, msg=lambda text, w=where: f"{w}: {text}")
            else:
                assert parts[key] == value, where
