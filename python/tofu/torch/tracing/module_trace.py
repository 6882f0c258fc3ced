"""Traces a module to the joint graph of its forward and backward pass, in ATen operators.

All tensors are fake: tracing computes nothing and allocates no parameter, so a module of any size
can be traced, on the device ``meta`` too.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import linecache
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar

import torch

from tofu.errors import GraphError
from tofu.torch.graphs.module_state import Reading, Replacement
from tofu.torch.graphs.repeats import with_checkpoints
from tofu.torch.graphs.traced import Traced
from tofu.torch.tiles.private_names import FakeTensorMode, aot_export_joint, pytree
from tofu.torch.tracing.any_device import as_on_any_device, traced_device
from tofu.torch.tracing.decompositions import as_described, table
from tofu.torch.tracing.example_inputs import Inputs, by_position_and_name
from tofu.torch.tracing.folded_rows import unfold_rows
from tofu.torch.tracing.grouped_products import GroupedProducts
from tofu.torch.tracing.joint_reader import read_joint
from tofu.torch.tracing.kept_by_forward import DataWrites, computed_before
from tofu.torch.tracing.known_draws import KnownDraws
from tofu.torch.tracing.known_values import KnownValues
from tofu.torch.tracing.left_by_forward import tensors_left
from tofu.torch.tracing.masked_writes import MaskedWrites
from tofu.torch.tracing.named_numbers import NamedNumbers, Place, as_numbers
from tofu.torch.tracing.open_trace import OpenTrace
from tofu.torch.tracing.sequence_losses import SequenceLosses
from tofu.torch.tracing.traced_checkpoints import marked_checkpoints
from tofu.torch.tracing.traced_forward import (
    OwnOutputs,
    ReturnsObjectError,
    without_other_randomness,
    without_seeds,
)
from tofu.torch.tracing.traced_modules import marked_modules
from tofu.torch.tracing.value_guards import ValueGuards

__all__ = ["trace", "trace_open", "without_data"]

Made = TypeVar("Made")


class _Pretence(enum.Enum):
    """Who traces a module, as its code finds if it asks; in the order of the attempts.

    A compiler's trace may leave out checks that depend on data, and may compute something else:
    transformers makes masks that a plain call does without.
    """

    NONE = "nobody"
    COMPILING = "torch.compile"
    EXPORTING = "torch.export"


# Traces with inputs by name.
Attempt = Callable[[dict[str, Any], _Pretence], Made]


def trace(
    model: torch.nn.Module,
    args: Inputs,
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    device: str = "cpu",
    gradients: bool = True,
) -> Traced:
    """Trace a module's forward and backward pass.

    Args:
        model: the module; only the shapes and types of its parameters matter.
        args: example inputs, or a dict of them by name; only the shapes and types of tensors
            matter.
        kwargs: example inputs by name.
        device: the type of the devices that will run the module, which need not be there. The
            operators are those of any device.
        gradients: whether to trace a backward pass.

    Raises:
        GraphError: the module cannot be traced; the message names the line in its code.
    """
    positional, by_name = by_position_and_name(args, kwargs)

    def make(in_timesteps: bool) -> Traced:
        def attempt(named: dict[str, Any], pretence: _Pretence) -> Traced:
            return _trace(model, positional, named, device, gradients, in_timesteps, pretence)

        return _without_cache(model, by_name, attempt)

    traced = make(False)
    if not traced.layers:
        return traced
    return dataclasses.replace(traced, timesteps=functools.cache(lambda: make(True)))


def trace_open(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    places: Sequence[frozenset[Place]],
    *,
    device: str = "cpu",
    gradients: bool = True,
    in_timesteps: bool = False,
) -> OpenTrace:
    """Trace a module for any values of some sizes of its inputs, and of the floats among them.

    Args:
        model: as for `trace`.
        args: as for `trace`.
        kwargs: as for `trace`.
        places: the sizes; those of a set are alike in all calls.
        device: as for `trace`.
        gradients: as for `trace`.
        in_timesteps: whether recurrent layers are taken apart.

    Raises:
        GraphError: the module cannot be traced, or its operators depend on values.
    """

    def attempt(named: dict[str, Any], pretence: _Pretence) -> OpenTrace:
        numbers = NamedNumbers((tuple(args), named), places)
        given, others = numbers.given
        with as_numbers():
            traced = _trace(
                model, given, others, device, gradients, in_timesteps, pretence, numbers
            )
        numbers.check(type(model).__name__)
        left = pytree.tree_leaves([*traced.left.values(), *traced.changes.values()])
        if any(isinstance(each, (torch.SymFloat, torch.SymBool)) for each in left):
            raise GraphError(f"{type(model).__name__}: forward keeps a number of the call's")
        return OpenTrace(dataclasses.replace(traced, hints=numbers.hints), numbers)

    return _without_cache(model, kwargs, attempt)


def _without_cache(
    model: torch.nn.Module, kwargs: Mapping[str, Any], attempt: Attempt[Made]
) -> Made:
    """Make a trace; again without a cache if forward returns one unless told otherwise."""
    named = dict(kwargs)
    try:
        return _pretending_less(attempt, named)
    except ReturnsObjectError as error:
        if not _uses_cache(getattr(model, "config", None)) or "use_cache" in named:
            raise
        uncached = _pretending_less(attempt, {**named, "use_cache": False})
        warnings.warn(
            f"{error.module}: planned with use_cache=False, as forward returns a cache otherwise; "
            "say use_cache=False in the call or the configuration",
            stacklevel=3,
        )
        return uncached


def _pretending_less(attempt: Attempt[Made], named: dict[str, Any]) -> Made:
    """Make a trace with the least pretence that lets it be made."""
    for pretence in (_Pretence.NONE, _Pretence.COMPILING):
        try:
            return attempt(named, pretence)
        except ReturnsObjectError:
            raise
        except GraphError:  # the last attempt tells why
            continue
    return attempt(named, _Pretence.EXPORTING)


def _uses_cache(config: Any) -> bool:
    """Whether a configuration of Hugging Face's, or one inside it, asks for a cache."""
    if not hasattr(config, "use_cache") and not hasattr(config, "model_type"):
        return False
    inner = (each for each in vars(config).values() if hasattr(each, "model_type"))
    return bool(getattr(config, "use_cache", False)) or any(map(_uses_cache, inner))


def _trace(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    device: str,
    gradients: bool,
    in_timesteps: bool,
    pretence: _Pretence,
    numbers: Optional[NamedNumbers] = None,
) -> Traced:
    device = traced_device(device)

    def like(position: int, tensor: Any) -> Any:
        if not isinstance(tensor, torch.Tensor):
            return tensor
        shape = tensor.shape if numbers is None else numbers.shape(position, tensor)
        empty = torch.empty(tuple(shape), dtype=tensor.dtype, device=device)
        return empty.requires_grad_(gradients and tensor.requires_grad)

    mode = FakeTensorMode(allow_non_fake_inputs=True) if numbers is None else numbers.mode
    with torch.inference_mode(False), mode:
        fake = without_data(model, device)
        for parameter in fake.parameters():
            parameter.requires_grad_(gradients and parameter.requires_grad)
        for hooks in (
            fake._forward_hooks, fake._forward_pre_hooks,
            fake._backward_hooks, fake._backward_pre_hooks,
        ):  # fmt: skip
            hooks.clear()  # they run around the planned call
        own = OwnOutputs(fake, gradients)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        inputs, named = pytree.tree_unflatten(map(like, itertools.count(), leaves), spec)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.enable_grad() if gradients else torch.no_grad())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(_pretending(pretence))
        stack.enter_context(marked_checkpoints())
        stack.enter_context(marked_modules(fake))
        stack.enter_context(GroupedProducts())
        stack.enter_context(as_described())
        stack.enter_context(as_on_any_device(device, in_timesteps))
        stack.enter_context(KnownDraws())
        stack.enter_context(DataWrites())
        stack.enter_context(without_other_randomness(type(model).__name__))
        stack.enter_context(without_seeds(type(model).__name__))
        stack.enter_context(SequenceLosses())
        stack.enter_context(MaskedWrites())
        stack.enter_context(KnownValues())
        stack.enter_context(ValueGuards())
        try:
            joint = aot_export_joint(stack, fake, inputs, named, decompositions=table())
        except GraphError:
            raise
        except Exception as error:  # torch and the module's code may raise anything
            raise _untraceable(model, error) from error
    own.check()
    unfold_rows(joint.graph_module.graph)
    traced = with_checkpoints(read_joint(joint, fake), type(model).__name__)
    return dataclasses.replace(
        traced,
        through=own.through,
        tiles=own.tiles,
        changes=own.changes,
        left=own.left,
        in_timesteps=in_timesteps,
    )


def _like(tensor: Any, device: str) -> Any:
    """A tensor of the same shape and type on a device."""
    empty = torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device=device)
    return empty.requires_grad_(tensor.requires_grad)


def without_data(model: torch.nn.Module, device: str) -> torch.nn.Module:
    """A copy of a module without data in parameters and buffers, not distributed either."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        empty = _like(parameter.detach(), device)
        memo[id(parameter)] = torch.nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = _like(buffer.detach(), device)
    memo.update((id(tensor), value) for tensor, value in tensors_left())
    distributed = []
    for name, module in model.named_modules():
        for computed in computed_before(module) & vars(module).keys():
            tensor = vars(module)[computed]
            memo[id(tensor)] = _like(tensor.detach(), device)
        forward = vars(module).get("forward")
        if isinstance(forward, Replacement):  # parallelize has replaced it
            memo[id(forward)] = None
            distributed.append((name, forward.own_forward))
    reading = Reading([*model.parameters(), *model.buffers()], set())
    reading.frozen(model, 0)
    for tensor in reading.replaced:
        memo.setdefault(id(tensor), memo.get(id(tensor.distributed), tensor))
    for tensor in reading.plain_tensors:
        memo.setdefault(id(tensor), tensor)  # a constant of the trace, with its data
    try:
        copied = copy.deepcopy(model, memo)
    except Exception as error:  # whatever an attribute's copy raises
        reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
        raise GraphError(
            f"{type(model).__name__}: cannot be copied to be traced ({reason}); expected "
            "attributes that copy.deepcopy copies"
        ) from error
    for module in copied.modules():
        module._compiled_call_impl = None  # of module.compile(): torch traces no compiled module
        if getattr(module, "sparse", None) is True:
            module.sparse = False  # gradients of embeddings are dense, with the same values
    for name, forward in distributed:
        del copied.get_submodule(name).forward
        if forward is not None:
            copied.get_submodule(name).forward = copy.deepcopy(forward, memo)
    return copied


@contextlib.contextmanager
def _pretending(pretence: _Pretence) -> Iterator[None]:
    """Have the module's code find this tracer."""
    before = torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag
    torch.compiler._is_compiling_flag = pretence in (_Pretence.COMPILING, _Pretence.EXPORTING)
    torch.compiler._is_exporting_flag = pretence is _Pretence.EXPORTING
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag, torch.compiler._is_exporting_flag = before


_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


def _untraceable(model: torch.nn.Module, error: Exception) -> GraphError:
    """A GraphError that names the last line of the user's code before the error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(_LIBRARIES) and f.filename[:1] != "<"]
    where = type(model).__name__
    if own:
        code = linecache.getline(own[-1].filename, own[-1].lineno or 0).strip()
        where = f"{own[-1].filename}:{own[-1].lineno}: {code}"
    reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
    if "non-functional tensor" in str(error):
        return GraphError(
            f"{where}: writes in place to a tensor that is neither a buffer nor made in this call; "
            "expected register_buffer for tensors that forward changes"
        )
    return GraphError(
        f"{where}: cannot be traced ({type(error).__name__}: {reason}); expected a forward whose "
        "operators and shapes do not depend on the values of tensors"
    )
