"""``tofu.torch.parallelize`` trains a module on all devices of a mesh.

Parameters and buffers become DTensors, placed as the plan says; optimizers, gradient clipping and
``torch.distributed.checkpoint`` work on them. ``forward`` runs the planned graph.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional, Union

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate

import tofu.torch.wrappers  # noqa: F401 registers a rule of DTensor
from tofu.config import Config
from tofu.errors import ConfigError, GraphError
from tofu.planner.wish import Wish
from tofu.plans import SearchOptions
from tofu.plans.report_level import set_level
from tofu.torch.graphs.module_graph import training_graph
from tofu.torch.graphs.module_state import ModuleState, Replacement, check_hooks
from tofu.torch.graphs.torch_plan import TorchPlan, plan_file_text, read_plan
from tofu.torch.graphs.traced import Blank, Entry, Scalar, Traced
from tofu.torch.planning import check_mesh, plan_traced, wish_of
from tofu.torch.programs.autograd_step import Call, check_plain, step
from tofu.torch.programs.rank_program import Program
from tofu.torch.rank_report import tell_planned
from tofu.torch.tiles.distributed_tensor import owned
from tofu.torch.tiles.placements import WHOLE, of_dtensor, tiles_of, to_dtensor
from tofu.torch.tiles.private_names import pytree
from tofu.torch.tiles.ranks import agreed, alike, check_same_call, checksum, distribute, rejoin
from tofu.torch.tiles.start_values import Initialise
from tofu.torch.tracing.changed_arguments import change
from tofu.torch.tracing.example_inputs import Inputs, by_position_and_name
from tofu.torch.tracing.left_by_forward import Lasting, Left, lasting, leave
from tofu.torch.tracing.module_trace import trace, trace_open
from tofu.torch.tracing.named_numbers import is_float, is_tensor, named_places
from tofu.torch.tracing.open_trace import OpenTrace, OpenTraces
from tofu.torch.whole_calls import WholeCalls, are_whole, holds_objects, say_once
from tofu.torch.whole_state import SavePretrained

__all__ = ["parallelize", "program_of"]

_HERE = "tofu.torch.parallelize"
_MOST_PROGRAMS = 32
GivenPlan = Union[None, TorchPlan, str, "os.PathLike[str]"]


def parallelize(
    model: torch.nn.Module,
    mesh: Union[DeviceMesh, Sequence[int]],
    args: Inputs,
    kwargs: Optional[Mapping[str, Any]] = None,
    *,
    plan: GivenPlan = None,
    options: Optional[SearchOptions] = None,
    memory: Union[int, str, None] = None,
    recompute: Optional[str] = None,
    compiled: bool = False,
    init: Initialise = None,
) -> torch.nn.Module:
    """Distribute a module over a mesh; call it on every rank with the same arguments.

    Args:
        model: the module, which is changed and returned. Every rank has the same parameters.
        mesh: a mesh of devices, or the sizes of the dimensions of a mesh of all ranks.
        args: example inputs of the whole batch, or a dict of them by name, as loaders have.
        kwargs: example inputs by name.
        plan: a plan, or a file that holds one; None: rank 0 searches for one.
        options: options of the search; None: those of the TOFU_* variables.
        memory: what a rank may hold in a step, in bytes or as "12GiB"; None: TOFU_MEMORY, if it
            is set.
        recompute: which activations the backward pass computes again: "auto" (as few as the
            memory needs), "none", or "all" (that save memory); None: TOFU_RECOMPUTE, else "auto".
        compiled: whether torch.compile compiles the calls between exchanges, in the first
            step.
        init: for parameters on the device ``meta``: a function that is called with every
            submodule, inner ones first, after the module's own initialisers.

    Returns:
        The module. Plain tensors given to it are the whole batch, the same on every rank, and
        its outputs are whole; given DTensors, it returns DTensors.

    Raises:
        ConfigError: the mesh does not fit the ranks or the plan, or parameters on the device
            ``meta`` get no values.
        GraphError: the module cannot be traced.
        MemoryLimitError: no plan was found that fits in the memory.
        PlanError: the plan is for another module or other inputs.
    """
    if hasattr(model, "_orig_mod"):
        raise ConfigError(
            f"{_HERE}: the module is compiled by torch.compile; give the module itself, with "
            "compiled=True, or compile what parallelize returns"
        )
    devices = _mesh(mesh)
    wish, config = agreed(  # ranks may have other variables
        lambda: (wish_of(_HERE, options, memory, recompute), Config.from_environment())
    )
    set_level(config.log_level)
    runner = _Runner(model, devices, wish, compiled, is_strict=config.strict)
    runner.prepare(*by_position_and_name(args, kwargs), plan, init)
    model.forward = runner
    if hasattr(type(model), "save_pretrained"):
        model.save_pretrained = SavePretrained(model)
    for module in model.modules():  # for calls of a part alone
        if module is not model and type(module).forward is not torch.nn.Module.forward:
            part_wish = Wish(exact=False)
            module.forward = _Runner(module, devices, part_wish, compiled, is_strict=config.strict)
    return model


def program_of(model: torch.nn.Module) -> Program:
    """The program of a distributed module's first kind of call, with its plan and exchanges.

    Raises ConfigError if the module has none.
    """
    known = model.forward.programs.values() if isinstance(model.forward, _Runner) else ()
    for program in known:
        if program is not None:
            return program
    raise ConfigError(
        f"tofu.torch.program_of: {type(model).__name__} has no program; expected the module that "
        "tofu.torch.parallelize returned, or a submodule that was called alone"
    )


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


class _Runner(Replacement):
    """The forward of a distributed module.

    Attributes:
        own_forward: the forward that it replaces, if that is the instance's own; else None.
        programs: a program for each kind of call, the last used ones last; None if every rank
            runs such calls whole.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        mesh: DeviceMesh,
        wish: Wish,
        compiled: bool,
        *,
        is_strict: bool,
    ) -> None:
        self.own_forward = vars(model).get("forward")
        self.__signature__ = inspect.signature(model.forward)
        self._compiled = compiled
        self._model = model
        self._name = type(model).__name__
        self._mesh = mesh
        self._wish = wish
        self._state = ModuleState(model)
        self._whole = WholeCalls(model)
        self._is_strict = is_strict
        self._said: set[str] = set()
        self._open = OpenTraces()
        self._lasting: dict[Any, Lasting] = {}  # by the form of open traces
        self.programs: dict[Any, Optional[Program]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> _Runner:
        """The forward of a copy of the module, which has the same programs."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        memo[id(self)] = copied
        copied.own_forward = copy.deepcopy(self.own_forward, memo)
        copied._model = copy.deepcopy(self._model, memo)
        copied._state = ModuleState(copied._model)
        copied._state.ignore(self._state.ignored)
        copied._whole = WholeCalls(copied._model)
        copied._open = OpenTraces()
        copied._lasting = {}
        copied.programs = {}
        return copied

    def __reduce__(self) -> Any:
        raise ConfigError(
            f"{self._name}: a distributed module cannot be pickled; save its state_dict() with "
            "torch.distributed.checkpoint"
        )

    def prepare(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], given: GivenPlan, init: Initialise
    ) -> None:
        """Plan the first kind of call, and distribute parameters and buffers."""
        rejoin(self._model, self._mesh)
        self._state.number()
        program = self._planned(lambda: self._traced(args, kwargs), given)
        assert program is not None
        placed = {
            variable.name: to_dtensor(program.placement(Entry(variable.name)))
            for variable in program.plan.traced.variables
            if variable.kind in ("parameter", "buffer")
        }
        distribute(self._model, self._mesh, placed, init)
        self.programs[self._kind(args, kwargs, program)] = program

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call distributed."""
        if are_whole():
            return self._own(*args, **kwargs)
        check_plain(self._name)
        if torch.compiler.is_exporting():
            raise GraphError(
                f"{self._name}: forward was replaced after parallelize by a function that calls "
                "the distributed forward; replace it before parallelize, or register a hook"
            )
        program, seed = self._program(args, kwargs)
        if program is None:
            return self._whole.run(self._own, self._state.tensors, args, kwargs)
        self._whole.drop()
        flat = pytree.tree_leaves((args, kwargs))
        traced = program.plan.traced
        divided = any(isinstance(each, DTensor) for each in flat)
        whole = set() if divided else set(range(len(traced.outputs))) - traced.tiles
        given = [v for v in traced.variables if v.kind in ("parameter", "buffer", "input")]
        known = self._state.tensors
        tensors = [_settled(flat[v.number] if v.kind == "input" else known[v.name]) for v in given]
        sizes = self._mesh.mesh.shape
        boxes = tuple(
            tiles_of(
                x.shape,
                of_dtensor(x.placements) if isinstance(x, DTensor) else (WHOLE,) * len(sizes),
                sizes,
            )
            for x in tensors
        )
        names = tuple(v.name for v in given)
        floats = {k: each for k, each in enumerate(flat) if is_float(each)}
        call = Call(program, known, names, boxes, whole, seed, floats, self._name)
        outputs = iter(step(call, tensors))
        results: list[Any] = [traced.constants.get(k) for k in range(len(traced.outputs))]
        for k, entry in enumerate(traced.outputs):
            if entry is not None:
                made = next(outputs)
                results[k] = made if k in whole else self._dtensor(made, entry, program)
            elif isinstance(results[k], Blank):
                results[k] = results[k].made(self._mesh.device_type)
            elif isinstance(results[k], Scalar):
                results[k] = results[k].value(floats)
        made, tensors = pytree.tree_unflatten(results, traced.out_spec)
        if traced.left:
            leave(self._state.containers, traced.left, traced.counts, tensors)
        change(traced.changes, args, kwargs, tensors)
        return made

    def _own(self, *args: Any, **kwargs: Any) -> Any:
        """Run the forward that this one replaces."""
        if self.own_forward is not None:
            return self.own_forward(*args, **kwargs)
        return type(self._model).forward(self._model, *args, **kwargs)

    def _dtensor(self, tile: Any, entry: Entry, program: Program) -> DTensor:
        shape = program.shape(entry)
        made = DTensor.from_local(
            tile, self._mesh, to_dtensor(program.placement(entry)), run_check=False,
            shape=shape, stride=_strides(shape),
        )  # fmt: skip
        return owned(made)

    # --- Programs -----------------------------------------------------------------------

    def _program(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Optional[Program], int]:
        """The program of a call that all ranks make, and the seed of its random numbers."""
        if not torch.is_grad_enabled() and holds_objects(args, kwargs):
            self._state.number()
            self._check_call("whole", args, kwargs, 0)
            self._say("an argument is an object, such as a cache")
            return None, 0
        kind = self._kind(args, kwargs)
        program = self.programs.get(kind)
        drawn = _draw() if program is not None and program.is_random else 0
        seed = self._check_call(kind, args, kwargs, drawn)
        if kind not in self.programs:
            program = self._planned_or_whole(args, kwargs)
            drawn = _draw() if program is not None and program.is_random else 0
            seed = agreed(lambda: drawn)  # all ranks have drawn, and go on alike
            kind = self._kind(args, kwargs, program)  # without attributes that forward counts up
        self.programs.pop(kind, None)
        self.programs[kind] = program  # as the last used one
        if len(self.programs) > _MOST_PROGRAMS:
            del self.programs[next(iter(self.programs))]
        return program, seed

    def _planned_or_whole(self, args: Any, kwargs: Any) -> Optional[Program]:
        """The program of a new kind of call; None if it cannot be traced, and has no gradients."""
        (form, _), _ = self._described(args, kwargs)
        program = self._planned(lambda: self._traced_open(args, kwargs), None)
        if program is not None:
            if not program.graph.fills() & set(program.plan.traced.hints):
                return program
            self._open.close(form)
        try:
            return self._planned(lambda: self._traced(args, kwargs), None)
        except GraphError as error:
            if torch.is_grad_enabled():
                raise
            self._say(str(error))
            return None

    def _say(self, reason: str) -> None:
        """Warn of a call that no plan serves. Raises ConfigError if TOFU_STRICT forbids it."""
        if self._is_strict:
            raise ConfigError(
                f"{self._name}: this kind of call cannot be partitioned, as TOFU_STRICT requires: "
                f"{reason}; without it, every rank runs the call whole"
            )
        say_once(
            self._said,
            f"{self._name}: every rank runs this kind of call whole, in plain torch, on all "
            f"parameters ({reason})",
        )

    def _kind(self, args: Any, kwargs: Any, program: Optional[Program] = None) -> Any:
        """A key for everything a trace depends on besides the module's code.

        Args:
            args: the arguments.
            kwargs: those by name.
            program: the program made for them, if it is new.
        """
        others, floats = self._described(args, kwargs)
        any_floats = (others, None) in self.programs
        if program is not None:
            any_floats = bool(program.plan.traced.hints)
        return others, None if any_floats else floats

    def _described(self, args: Any, kwargs: Any) -> tuple[Any, tuple[str, ...]]:
        """Properties of a call that select its trace, and its floats, which must not select one."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        what = tuple(
            (x.ndim, x.dtype, x.requires_grad)
            if isinstance(x, torch.Tensor)
            else ("" if is_float(x) else repr(x))
            for x in leaves
        )
        shapes = tuple((k, tuple(x.shape)) for k, x in enumerate(leaves) if is_tensor(x))
        device = self._mesh.device_type
        cast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        form = spec, what, cast, torch.is_grad_enabled(), self._state.number()
        return (form, shapes), tuple(repr(x) for x in leaves if is_float(x))

    def _check_call(self, kind: Any, args: Any, kwargs: Any, drawn: int) -> int:
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        tensors = [f"{tuple(x.shape)} {str(x.dtype).partition('.')[2]}" for x in given]
        mode = "train()" if self._model.training else "eval()"
        what = f"{', '.join(tensors) or 'no tensors'} in {mode}"
        placed = [str(x.placements) for x in given if isinstance(x, DTensor)]
        alike = [x for x in (*given, *self._state.tensors.values()) if not isinstance(x, DTensor)]
        floats = [x for x in pytree.tree_leaves((args, kwargs)) if is_float(x)]
        text = f"{placed}/{kind}/{floats}/{kind in self.programs}"
        return check_same_call(what, text, self._name, alike, drawn, self._mesh.device_type)

    def _planned(self, make: Callable[[], Optional[Traced]], given: GivenPlan) -> Optional[Program]:
        """The program of a trace; None if there is no trace."""
        sizes = tuple(self._mesh.mesh.shape)
        traced = alike(make, lambda made: "" if made is None else _identity(made), self._name)
        if traced is None:
            return None
        if given is None:
            options = dataclasses.replace(self._wish.options, pins=self._pins())
            wish = dataclasses.replace(self._wish, options=options)
            made: list[TorchPlan] = []  # on rank 0, which need not read it

            def plan_text() -> str:
                made.append(plan_traced(traced, sizes, wish=wish, name=self._name))
                return made[0].to_json()

            text = agreed(plan_text)
            plan = made[0] if made else read_plan(text, traced, sizes, "the plan")
        else:
            text = given.to_json() if isinstance(given, TorchPlan) else plan_file_text(given)
            plan = read_plan(text, traced, sizes, _named(given))
        if dist.get_rank() == 0:
            origin = "" if given is None else _named(given)
            tell_planned(self._name, plan, self._mesh.device_type, origin, first=not self.programs)
        return Program(plan, self._mesh, compiled=self._compiled)

    def _traced_open(self, args: Any, kwargs: Any) -> Optional[Traced]:
        """The trace of a call that differs from an earlier one in floats and sizes alone.

        None if there is no such call, or if forward depends on the values or may ask for types.
        """
        (form, shapes), _ = self._described(args, kwargs)
        calls = [kind[0][1] for kind in self.programs if kind[0][0] == form]

        def make() -> OpenTrace:
            check_hooks(self._model)
            places = named_places([dict(each) for each in (*calls, shapes)])
            programs = filter(None, self.programs.values())
            return trace_open(
                self._model, args, kwargs, places, **self._device_and_gradients(),
                in_timesteps=any(each.plan.traced.in_timesteps for each in programs),
            )  # fmt: skip

        if not calls or self._state.asks_for_types:
            return None
        traced = self._open.find(form, shapes, make)
        if traced is None:
            return None
        return self._with_lasting(traced, lambda: make().at(dict(shapes)), form)

    def _traced(self, args: Any, kwargs: Any) -> Traced:
        """The trace of a call."""
        check_hooks(self._model)

        def make() -> Traced:
            return trace(self._model, args, kwargs, **self._device_and_gradients())

        return self._with_lasting(make(), make)

    def _device_and_gradients(self) -> dict[str, Any]:
        return {"device": self._mesh.device_type, "gradients": torch.is_grad_enabled()}

    def _with_lasting(
        self, traced: Traced, make: Callable[[], Optional[Traced]], form: Any = None
    ) -> Traced:
        """The trace, with increments of counters; `make` traces the call again.

        Traces of one form, if it has any, leave values at the same places.
        """
        if not traced.left:
            return traced

        def again() -> tuple[Left, Any]:
            second = make()
            return ({}, None) if second is None else (second.left, _identity(second))

        found = self._lasting.get(form)
        if found is None or len(found.left) != len(traced.left):
            self._state.number()
            known = self._state.containers
            found = lasting(self._name, known, traced.left, again, _identity(traced))
            self._state.ignore(found.ignored)
            if form is not None:
                self._lasting[form] = found

        def counted(made: Traced) -> Traced:
            left = dict(zip(found.left, made.left.values()))
            return dataclasses.replace(made, left=left, counts=found.counts)

        apart = traced.timesteps
        timesteps = apart and (lambda: counted(apart()))
        return dataclasses.replace(counted(traced), timesteps=timesteps)

    def _pins(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The user's pins; parameters and buffers stay where an earlier program has them."""
        sizes = self._mesh.mesh.shape
        known = self._state.tensors
        own = [
            (name, tuple(int(c) for c, n in zip(of_dtensor(tensor.placements), sizes) if n > 1))
            for name, tensor in known.items()
            if isinstance(tensor, DTensor)
        ]
        given = [pin for pin in self._wish.options.pins if not own or pin[0] in known]
        return tuple(own or given)


def _identity(traced: Traced) -> str:
    """A key of what all ranks must have alike: graph, order of memory, and constants."""
    constants = [checksum(v.value) for v in traced.variables if v.kind == "constant"]
    orders = [[o.order(k) for k in range(len(o.outputs))] for o in traced.operators]
    return f"{training_graph(traced).hash}/{zlib.crc32(repr(orders).encode())}/{constants}"


def _settled(tensor: Any) -> Any:
    """The tensor; a DTensor without sums that are still to be made."""
    if isinstance(tensor, DTensor) and any(each.is_partial() for each in tensor.placements):
        places = [Replicate() if each.is_partial() else each for each in tensor.placements]
        return tensor.redistribute(placements=places)
    return tensor


def _draw() -> int:
    """A seed from torch's generator, so that its seed and state decide a call's numbers."""
    return int(torch.randint(0, 1 << 62, ()))


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for d in range(len(shape) - 1, 0, -1):
        strides[d - 1] = strides[d] * shape[d]
    return tuple(strides)


def _named(given: GivenPlan) -> str:
    return "the plan" if isinstance(given, TorchPlan) else str(given)
