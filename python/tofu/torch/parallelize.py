"""``tofu.torch.parallelize`` trains a module on all devices of a mesh.

Parameters and buffers become DTensors, placed as the plan says; optimizers, gradient clipping and
``torch.distributed.checkpoint`` work on them. ``forward`` runs the planned graph.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from tofu.errors import ConfigError, PlanError
from tofu.plans import SearchOptions
from tofu.torch.module_graph import training_graph
from tofu.torch.module_trace import Entry, trace, without_data
from tofu.torch.placements import WHOLE, Boxes, of_dtensor, tiles_of, to_dtensor
from tofu.torch.planning import check_mesh, plan_traced
from tofu.torch.rank_program import Program
from tofu.torch.ranks import agreed, alike, check_same_call, distribute
from tofu.torch.torch_plan import TorchPlan, read_plan

__all__ = ["parallelize", "program_of"]

_HERE = "tofu.torch.parallelize"
GivenPlan = Union[None, TorchPlan, str, "os.PathLike[str]"]


def parallelize(
    model: torch.nn.Module,
    mesh: Union[DeviceMesh, Sequence[int]],
    args: Sequence[Any],
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    plan: GivenPlan = None,
    options: Optional[SearchOptions] = None,
    compiled: bool = False,
) -> torch.nn.Module:
    """Distribute a module over a mesh; call it on every rank with the same arguments.

    Args:
        model: the module, which is changed and returned. Every rank has the same parameters.
        mesh: a mesh of devices, or the sizes of the dimensions of a mesh of all ranks.
        args: example inputs of the whole batch.
        kwargs: example inputs by name.
        plan: a plan, or a file that holds one; None: rank 0 searches for one.
        options: options of the search.
        compiled: whether torch.compile compiles the calls between exchanges, in the first
            step.

    Returns:
        The module. Plain tensors given to it are the whole batch, the same on every rank, and
        its outputs are whole; given DTensors, it returns DTensors.

    Raises:
        ConfigError: the mesh does not fit the ranks or the plan.
        GraphError: the module cannot be traced.
        PlanError: the plan is for another module or other inputs.
    """
    devices = _mesh(mesh)
    runner = _Runner(model, devices, options, compiled)
    runner.prepare(tuple(args), dict(kwargs or {}), plan)
    model.forward = runner.call
    return model


def program_of(model: torch.nn.Module) -> Program:
    """The program of a distributed module's first kind of call, with its plan and exchanges."""
    runner = model.forward.__self__
    assert isinstance(runner, _Runner)
    return next(iter(runner.programs.values()))


def _mesh(mesh: Union[DeviceMesh, Sequence[int]]) -> DeviceMesh:
    given = mesh.mesh.shape if isinstance(mesh, DeviceMesh) else mesh
    sizes = check_mesh(given, f"{_HERE}: mesh")
    ranks = dist.get_world_size() if dist.is_initialized() else _world_size()
    if math.prod(sizes) != ranks:
        raise ConfigError(
            f"{_HERE}: mesh {sizes} has {math.prod(sizes)} devices, but there are {ranks} ranks; "
            "give sizes with that product, or start as many ranks"
        )
    if isinstance(mesh, DeviceMesh):
        return mesh
    return init_device_mesh("cuda" if torch.cuda.is_available() else "cpu", sizes)


def _world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


class _Runner:
    """The forward of a distributed module.

    Attributes:
        programs: a program for each kind of call.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        mesh: DeviceMesh,
        options: Optional[SearchOptions],
        compiled: bool,
    ) -> None:
        self._compiled = compiled
        self._model = model
        self._mesh = mesh
        self._options = options or SearchOptions()
        self._seed = agreed(torch.initial_seed)
        self._skeleton = without_data(model, "meta")
        self.programs: dict[Any, Program] = {}
        self._tiles: dict[str, DTensor] = {}

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: GivenPlan) -> None:
        """Plan the first kind of call, and distribute parameters and buffers."""
        program = self._program(args, kwargs, given)
        placed = {
            variable.name: to_dtensor(program.placement(Entry(variable.name)))
            for variable in program.plan.traced.variables
            if variable.kind in ("parameter", "buffer")
        }
        self._tiles = distribute(self._model, self._mesh, placed)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call distributed; replaces the module's forward."""
        self._check_call(args, kwargs)
        program = self._program(args, kwargs, None)
        flat = pytree.tree_leaves((args, kwargs))
        traced = program.plan.traced
        whole = not any(isinstance(each, DTensor) for each in flat)
        given = [v for v in traced.variables if v.kind in ("parameter", "buffer", "input")]
        tensors = [flat[v.number] if v.kind == "input" else self._tiles[v.name] for v in given]
        sizes = self._mesh.mesh.shape
        boxes = tuple(
            tiles_of(
                x.shape,
                of_dtensor(x.placements) if isinstance(x, DTensor) else (WHOLE,) * len(sizes),
                sizes,
            )
            for x in tensors
        )
        tiles = [x.to_local() if isinstance(x, DTensor) else x for x in tensors]
        call = _Call(program, self._tiles, tuple(v.name for v in given), boxes, whole)
        outputs = iter(_Step.apply(call, *tiles))
        results: list[Any] = [traced.constants.get(k) for k in range(len(traced.outputs))]
        for k, entry in enumerate(traced.outputs):
            if entry is not None:
                results[k] = (
                    next(outputs) if whole else self._dtensor(next(outputs), entry, program)
                )
        return pytree.tree_unflatten(results, traced.out_spec)

    def _dtensor(self, tile: Any, entry: Entry, program: Program) -> DTensor:
        shape = program.shape(entry)
        return DTensor.from_local(
            tile, self._mesh, to_dtensor(program.placement(entry)), run_check=False,
            shape=shape, stride=_strides(shape),
        )  # fmt: skip

    def _check_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        tensors = [f"{tuple(x.shape)} {str(x.dtype).partition('.')[2]}" for x in given]
        mode = "train()" if self._model.training else "eval()"
        what = f"{', '.join(tensors) or 'no tensors'} in {mode}"
        placed = [str(x.placements) for x in given if isinstance(x, DTensor)]
        device = self._mesh.device_type
        kind = f"{placed}/{_kind(self._model, args, kwargs, device)}"
        check_same_call(what, kind, type(self._model).__name__, device)

    # --- Programs -----------------------------------------------------------------------

    def _program(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: GivenPlan) -> Program:
        key = _kind(self._model, args, kwargs, self._mesh.device_type)
        if key not in self.programs:
            self.programs[key] = self._planned(args, kwargs, given)
        return self.programs[key]

    def _planned(self, args: tuple[Any, ...], kwargs: dict[str, Any], given: GivenPlan) -> Program:
        for name, module in self._model.named_modules():
            self._skeleton.get_submodule(name).training = module.training
        for name, parameter in self._model.named_parameters():
            self._skeleton.get_parameter(name).requires_grad_(parameter.requires_grad)
        device, sizes = self._mesh.device_type, tuple(self._mesh.mesh.shape)
        traced = alike(
            lambda: trace(self._skeleton, args, kwargs, device=device),
            lambda made: training_graph(made).hash,
            type(self._model).__name__,
        )
        if given is None:
            options = dataclasses.replace(self._options, pins=self._pins())
            text = agreed(lambda: plan_traced(traced, sizes, options=options).to_json())
        else:
            text = given.to_json() if isinstance(given, TorchPlan) else _text_of(given)
        plan = read_plan(text, traced, sizes, "the plan" if given is None else _named(given))
        return Program(plan, self._mesh, self._seed, compiled=self._compiled)

    def _pins(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The user's pins; parameters and buffers stay where an earlier program has them."""
        sizes = self._mesh.mesh.shape
        own = [
            (name, tuple(int(c) for c, n in zip(of_dtensor(tensor.placements), sizes) if n > 1))
            for name, tensor in self._tiles.items()
        ]
        names = {name for name, _ in own}
        given = [pin for pin in self._options.pins if not own or pin[0] in names]
        return tuple(own or given)


@dataclasses.dataclass(frozen=True)
class _Call:
    """One call of a distributed module.

    Attributes:
        program: the program to run.
        buffers: DTensors by name; some get new values.
        names: the tensors passed in.
        boxes: the boxes that ranks hold of each of them.
        whole: whether to return whole outputs instead of tiles.
    """

    program: Program
    buffers: Mapping[str, DTensor]
    names: tuple[str, ...]
    boxes: tuple[Boxes, ...]
    whole: bool

    def boxes_of_output(self, entry: Entry) -> Boxes:
        """The boxes in which an output is returned."""
        place = self.program.placement(entry)
        sizes = self.program.mesh.mesh.shape
        return tiles_of(
            self.program.shape(entry), (WHOLE,) * len(sizes) if self.whole else place, sizes
        )


class _Step(torch.autograd.Function):
    """A program in torch's autograd graph: tiles of parameters and inputs in, outputs out."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *given: Any) -> tuple[Any, ...]:
        """Run the forward pass, and give buffers their new values."""
        program, traced = call.program, call.program.plan.traced
        layouts = [program.boxes(name) for name in call.names]
        moved = program.moved(list(zip(given, call.boxes, layouts)))
        inputs = {
            name: tile.clone() if name in traced.mutations else tile
            for name, tile in zip(call.names, moved)
        }
        with _no_autocast(program):
            saved, made, changed = program.forward(inputs)
        held = dict(zip(call.names, call.boxes))
        moves = [(value, program.boxes(name), held[name]) for name, value in changed.items()]
        for name, value in zip(changed, program.moved(moves)):
            call.buffers[name].to_local().copy_(value)
        ctx.call, ctx.saved = call, tuple(saved)
        ctx.save_for_backward(*saved.values())
        places = [k for k, output in enumerate(traced.outputs) if output is not None]
        heads = program.graph.outputs
        moves = [
            (value, head.layout.boxes, call.boxes_of_output(output))
            for value, head, output in zip(made, heads, filter(None, traced.outputs))
        ]
        outputs, fixed = [], []
        known = {id(tensor) for tensor in (*given, *inputs.values())}
        for k, value in zip(places, program.moved(moves)):
            outputs.append(value.clone() if id(value) in known else value)
            known.add(id(outputs[-1]))
            if k not in traced.differentiable:
                fixed.append(outputs[-1])
        ctx.mark_non_differentiable(*fixed)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Run the backward pass."""
        call: _Call = ctx.call
        program, traced = call.program, call.program.plan.traced
        tensors = [k for k, entry in enumerate(traced.outputs) if entry is not None]
        given = dict(zip(tensors, grads))
        names, moves = [], []
        for variable in traced.variables:
            if variable.kind == "tangent":
                output = traced.outputs[variable.number]
                assert output is not None
                names.append(variable.name)
                boxes = call.boxes_of_output(output)
                moves.append((given[variable.number], boxes, program.boxes(variable.name)))
        tangents = dict(zip(names, program.moved(moves)))
        moves.clear()
        saved = dict(zip(ctx.saved, ctx.saved_tensors))
        ctx.maybe_clear_saved_tensors()  # keeps them if the user retains the graph
        with _no_autocast(program):
            gradients = program.backward(saved, tangents)
        heads = program.graph.gradients
        wanted = [
            (k, name, boxes)
            for k, (name, boxes) in enumerate(zip(call.names, call.boxes))
            if name in gradients
        ]
        moved = program.moved(
            [(gradients[name], heads[name].layout.boxes, boxes) for _, name, boxes in wanted]
        )
        results: list[Any] = [None] * len(call.names)
        for (k, _, _), gradient in zip(wanted, moved):
            results[k] = gradient
        return (None, *results)


def _no_autocast(program: Program) -> Any:
    """Disables autocast: it took effect when the graph was traced."""
    return torch.autocast(program.mesh.device_type, enabled=False)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for d in range(len(shape) - 1, 0, -1):
        strides[d - 1] = strides[d] * shape[d]
    return tuple(strides)


def _named(given: GivenPlan) -> str:
    return "the plan" if isinstance(given, TorchPlan) else str(given)


def _text_of(path: Union[str, os.PathLike[str], None]) -> str:
    try:
        return Path(str(path)).read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"{path}: cannot be read ({error.strerror}); expected a plan that "
            "tofu plan --mesh writes with --format json"
        ) from None


def _kind(model: torch.nn.Module, args: Any, kwargs: Any, device: str) -> Any:
    """A key for everything a trace depends on besides the module's code."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    what = tuple(
        (tuple(x.shape), x.dtype, x.requires_grad) if isinstance(x, torch.Tensor) else repr(x)
        for x in leaves
    )
    modes = tuple(module.training for module in model.modules())
    frozen = tuple(parameter.requires_grad for parameter in model.parameters())
    cast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    return spec, what, modes, frozen, cast
