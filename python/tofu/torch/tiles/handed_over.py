"""Hands to a distributed parameter what the script has given to the whole one before.

Gradients, hooks and attributes of a parameter go on. Optimizers that have it, and lists and other
modules of the script, mean the distributed one from then on, so a script may make them before
``parallelize`` or after it.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tofu.errors import ConfigError
from tofu.torch.tiles.distributed_tensor import counts_nodes, hook_after, hook_of_tiles, placed
from tofu.torch.tiles.private_names import pytree

__all__ = ["Replaced", "hand_over"]


class Replaced(torch.nn.Parameter):
    """A parameter of a script whose place a distributed one has taken, which it stands for.

    Attributes:
        distributed: that parameter.
    """

    distributed: Any

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one of torch's functions on the distributed parameter."""
        args, kwargs = pytree.tree_map_only(cls, lambda x: x.distributed, (args, kwargs or {}))
        return function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["distributed"], name)

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.deepcopy(self.distributed, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.distributed.__reduce_ex__(protocol)


def hand_over(pairs: Sequence[tuple[Any, Any]]) -> None:
    """Give distributed tensors what whole ones have.

    Args:
        pairs: a whole tensor, and the distributed one that takes its place; of buffers nothing is
            handed over.

    Raises:
        ConfigError: a parameter has a hook that counts nodes of autograd, which it will have anew.
    """
    pairs = [(old, new) for old, new in pairs if isinstance(old, torch.nn.Parameter)]
    if any(counts_nodes(hook) for old, _ in pairs for hook in (old._backward_hooks or {}).values()):
        raise ConfigError(
            "tofu.torch.parallelize: a parameter has a hook of register_multi_grad_hook, which "
            "would wait for nodes of autograd that are left; register it after parallelize"
        )
    for old, new in pairs:
        _hand_on(old, new)
    known = {id(old): new for old, new in pairs}
    for each in gc.get_objects():  # nothing lists a parameter's optimizers
        if issubclass(type(each), torch.optim.Optimizer) and "param_groups" in vars(each):
            _follow(each, known)
    for old, new in pairs:
        if type(old) is torch.nn.Parameter:
            old.grad, old.data = None, old.data.new_empty(0)
            torch.autograd.graph.increment_version(old)  # a backward pass from before raises
            old.__class__, old.distributed = Replaced, new


def _hand_on(old: Any, new: Any) -> None:
    """Hand on a parameter's gradient, hooks and attributes."""
    if old.grad is not None:
        new.grad = old.grad
    hooks, last = old._backward_hooks, old._post_accumulate_grad_hooks
    with torch._C.DisableTorchFunctionSubclass():  # they stay the same dicts, for handles
        if hooks is not None:
            hooks.update({key: hook_of_tiles(hook) for key, hook in hooks.items()})
            new._backward_hooks = hooks
        if last is not None:
            last.update({key: hook_after(new, hook) for key, hook in last.items()})
            new._post_accumulate_grad_hooks = last
    for name, value in vars(old).items():
        vars(new).setdefault(name, value)


def _follow(optimizer: Any, known: Mapping[int, Any]) -> None:
    """Have an optimizer train the distributed parameters, with the state that it has."""
    for group in optimizer.param_groups:
        group["params"] = [known.get(id(each), each) for each in group["params"]]
    for old in [each for each in optimizer.state if id(each) in known]:
        new = known[id(old)]
        optimizer.state[new] = {
            name: placed(value, new._spec) if getattr(value, "shape", None) == old.shape else value
            for name, value in optimizer.state.pop(old).items()
        }
