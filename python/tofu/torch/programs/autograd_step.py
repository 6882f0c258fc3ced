"""A program's call as one node of torch's autograd graph."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from tofu.errors import GraphError
from tofu.torch.graphs.module_state import version_of
from tofu.torch.graphs.traced import Variable
from tofu.torch.programs.rank_program import Program
from tofu.torch.tiles.distributed_tensor import owned
from tofu.torch.tiles.placements import WHOLE, Boxes, tiles_of
from tofu.torch.tiles.private_names import peek_interpreter_stack

__all__ = ["Call", "check_plain", "step"]


@dataclass(frozen=True)
class Call:
    """One call of a distributed module.

    Attributes:
        program: the program to run.
        buffers: parameters and buffers by name; some buffers get new values.
        names: the tensors passed in.
        boxes: the boxes that ranks hold of each of them.
        whole: the positions of outputs to return whole, not as tiles.
        seed: seed of the call's random numbers.
        floats: the floats among the call's arguments, by position.
        module: the module's name, for errors.
    """

    program: Program
    buffers: Mapping[str, Any]
    names: tuple[str, ...]
    boxes: tuple[Boxes, ...]
    whole: Set[int]
    seed: int
    floats: Mapping[int, float]
    module: str

    def boxes_of_output(self, number: int) -> Boxes:
        """The boxes in which the output at a position is returned."""
        entry = self.program.plan.traced.outputs[number]
        assert entry is not None
        sizes = self.program.mesh.mesh.shape
        place = (WHOLE,) * len(sizes) if number in self.whole else self.program.placement(entry)
        return tiles_of(self.program.shape(entry), place, sizes)


def check_plain(module: str) -> None:
    """Raise GraphError inside of transformations, as of ``torch.func``; no program follows them."""
    batched = torch._C._dispatch_tls_is_dispatch_key_included("VmapMode")
    if batched or peek_interpreter_stack() is not None:
        raise GraphError(
            f"{module}: torch.func.grad, vmap, jvp and others, and is_grads_batched, do not "
            "transform planned calls; use torch.autograd.grad around the call, one gradient at a "
            "time, or transform a part of the module inside forward"
        )


def step(call: Call, tensors: list[Any]) -> tuple[Any, ...]:
    """Run a call: parameters, buffers and inputs in, outputs that are tensors out."""
    outputs: tuple[Any, ...] = _Step.apply(call, *tensors)
    nodes = {each.grad_fn for each in outputs} - {None}
    if len(outputs) > 1 and nodes:
        outputs = tuple(_Output.apply(x) if x.requires_grad else x for x in outputs)
        (node,) = nodes
        node.made = [weakref.ref(each) for each in outputs]
    return outputs


class _Output(torch.autograd.Function):
    """A node for each output of several, whose hooks run only if a loss depends on it."""

    @staticmethod
    def forward(ctx: Any, value: Any) -> Any:
        """The same tensor, but no view, of which a script could not detach all."""
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The same gradient."""
        return grads


class _Step(torch.autograd.Function):
    """A program in torch's autograd graph."""

    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Any) -> tuple[Any, ...]:
        """Run the forward pass, and give buffers their new values."""
        program, traced = call.program, call.program.plan.traced
        given = [_tile(x) for x in tensors]
        layouts = [program.boxes(name) for name in call.names]
        moved = program.moved(list(zip(given, call.boxes, layouts)))
        inputs = {
            name: tile.clone() if name in traced.mutations else tile
            for name, tile in zip(call.names, moved)
        }
        with _no_autocast(program):
            saved, made, changed = program.forward(inputs, call.seed, call.floats)
        held = dict(zip(call.names, call.boxes))
        moves = [(value, program.boxes(name), held[name]) for name, value in changed.items()]
        for name, value in zip(changed, program.moved(moves)):
            buffer = call.buffers[name]
            _tile(buffer).copy_(value)
        ctx.call, ctx.saved = call, tuple(saved)
        ctx.read = [
            (name, each, version_of(each))
            for name, each in zip(call.names, tensors)
            if name in traced.read_backward
        ]
        ctx.trained = [each for each in tensors if each.requires_grad]
        ctx.divided = {k: x._spec for k, x in enumerate(tensors) if isinstance(x, DTensor)}
        ctx.save_for_backward(*saved.values())
        places = [k for k, output in enumerate(traced.outputs) if output is not None]
        heads = program.graph.outputs
        moves = [
            (value, head.boxes, call.boxes_of_output(k))
            for value, head, k in zip(made, heads, places)
        ]
        outputs, fixed = [], []
        known = {id(tensor) for tensor in (*given, *inputs.values())}
        for k, value in zip(places, program.moved(moves)):
            outputs.append(value.clone() if id(value) in known else value)
            known.add(id(outputs[-1]))
            if k not in traced.differentiable:
                fixed.append(outputs[-1])
        ctx.mark_non_differentiable(*fixed)
        ctx.set_materialize_grads(False)  # None tells the outputs that no loss depends on
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Run the backward pass; its results have no gradients of their own."""
        check_plain(ctx.call.module)
        again = torch.is_grad_enabled()  # with create_graph=True
        with torch.no_grad():
            results = _gradients(ctx, grads)
        for k, spec in ctx.divided.items():
            if results[k] is not None:
                results[k] = owned(DTensor(results[k], spec, requires_grad=False))
        if again:
            where = [k for k, each in enumerate(results) if each is not None]
            gradients = [results[k] for k in where]
            made = _Once.apply(ctx.call.module, len(gradients), *gradients, *ctx.trained)
            for k, value in zip(where, made):
                results[k] = value
        return (None, *results)


def _tile(tensor: Any) -> Any:
    """This rank's tile."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _gradients(ctx: Any, grads: tuple[Any, ...]) -> list[Any]:
    """The gradients of a call's tensors, None for those without."""
    call: Call = ctx.call
    program, traced = call.program, call.program.plan.traced
    _check_versions(call, ctx.read)
    tensors = [k for k, entry in enumerate(traced.outputs) if entry is not None]
    given = dict(zip(tensors, grads))
    for k, made in zip(tensors, getattr(ctx, "made", ())):
        _check_through(call, k, made(), given)
    names, moves = [], []
    unused = {v.name for v in traced.variables if v.kind == "tangent" and given[v.number] is None}
    for variable in traced.variables:
        if variable.kind == "tangent":
            names.append(variable.name)
            boxes = call.boxes_of_output(variable.number)
            tangent = _tangent(call, variable, given[variable.number], boxes)
            moves.append((tangent, boxes, program.boxes(variable.name)))
    tangents = dict(zip(names, program.moved(moves)))
    moves.clear()
    saved = dict(zip(ctx.saved, ctx.saved_tensors))
    ctx.maybe_clear_saved_tensors()  # keeps them if the user retains the graph
    with _no_autocast(program):
        gradients = program.backward(saved, tangents, call.seed, call.floats)
    heads = program.graph.gradients
    needed = [
        (k, name, boxes)
        for k, (name, boxes) in enumerate(zip(call.names, call.boxes))
        if name in gradients and not _only(traced.tangents_of[name], unused)
    ]
    moved = program.moved(
        [(gradients[name], heads[name].boxes, boxes) for _, name, boxes in needed]
    )
    results: list[Any] = [None] * len(call.names)
    for (k, _, _), gradient in zip(needed, moved):
        results[k] = gradient
    return results


def _check_versions(call: Call, read: list[tuple[str, Any, Any]]) -> None:
    """Raise RuntimeError, as torch does, if what the backward pass reads was written to."""
    for name, tensor, before in read:
        if version_of(tensor) != before:
            raise RuntimeError(
                f"{call.module}: one of the variables needed for gradient computation has been "
                f"modified by an inplace operation: {name!r} was written to after the call; call "
                "backward() before that"
            )


def _check_through(call: Call, k: int, output: Any, given: Mapping[int, Any]) -> None:
    """Raise GraphError if a script wants an output's gradient, part of which stays inside."""
    if output is None or not (output.retains_grad or output._backward_hooks):
        return
    for other in call.program.plan.traced.through.get(k, ()):
        if given[other] is not None:
            raise GraphError(
                f"{call.module}: output {k} retains its gradient or has a hook, but the loss "
                f"depends on it through output {other}, which a planned call computes inside; "
                "expected gradients of outputs that no other output of the loss depends on: "
                f"compute output {other} from it outside of the module"
            )


def _only(tangents: frozenset[str], unused: set[str]) -> bool:
    """Whether a gradient depends on tangents, and on none but those of unused outputs."""
    return bool(tangents) and tangents <= unused


def _tangent(call: Call, variable: Variable, given: Any, boxes: Boxes) -> Any:
    """This rank's tile of an output's gradient; zeros if no loss depends on the output."""
    if isinstance(given, DTensor):  # as from a penalty on parameters in the script's loss
        return given.full_tensor() if variable.number in call.whole else _tile(given)
    if given is None:
        shape = boxes[call.program.worker].shape
        return torch.zeros(shape, dtype=variable.meta.dtype, device=call.program.mesh.device_type)
    return given


class _Once(torch.autograd.Function):
    """Gradients that cannot be differentiated again, by any of the tensors that they depend on."""

    @staticmethod
    def forward(ctx: Any, name: str, count: int, *tensors: Any) -> tuple[Any, ...]:
        """Return the gradients, which come before the tensors that they depend on."""
        ctx.name = name
        return tuple(gradient.view_as(gradient) for gradient in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Raise GraphError."""
        raise GraphError(
            f"{ctx.name}: gradients of gradients are not planned, so a planned module's gradients "
            "have none; compute the gradient inside forward, with torch.autograd.grad(..., "
            "create_graph=True), and return what depends on it"
        )


def _no_autocast(program: Program) -> Any:
    """Disables autocast: it took effect when the graph was traced."""
    return torch.autocast(program.mesh.device_type, enabled=False)
