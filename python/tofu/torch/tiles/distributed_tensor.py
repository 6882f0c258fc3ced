"""The class of a distributed module's parameters, and of their gradients, outside of planned calls.

A script takes norms of parameters, adds penalties, clips and writes to them as in plain torch::

    loss = model(data) + 0.1 * torch.stack([p.norm() for p in model.parameters()]).sum()

`Distributed` is torch's DTensor with three more rules. A plain tensor that meets one is whole. Sums
over parts are added up at once, so no operator takes a part for the whole. Where DTensor has no
rule, or false ones, every rank runs the operator on whole tensors. Operators on distributed tensors
may communicate, so all ranks must call them.
"""

from __future__ import annotations

import copy
import functools
import inspect
import traceback
from typing import Any, Callable

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from tofu.errors import PlanError
from tofu.torch.tiles.private_names import lists_of, optimizers_lists_of, pytree

__all__ = [
    "Distributed", "counts_nodes", "draws", "hook_after", "hook_of_tiles", "overloads", "owned",
    "placed",
]  # fmt: skip

_Tensor: Any = torch.Tensor
_READS_VALUES = (
    _Tensor.numpy, _Tensor.tolist, _Tensor.item, _Tensor.__array__, _Tensor.__bool__,
    _Tensor.__contains__,
)  # fmt: skip
# DTensor divides losses and pools by the sizes of tiles; functions that initialise draw.
_WHOLE_MODULES = ("torch.nn.functional", "torch._C._nn", "torch.nn.init")
# Where DTensor's rules raise errors; they see sizes and placements only, so all ranks get the same.
_RULES = tuple(f"torch.distributed.tensor.{x}" for x in ("_dispatch", "_sharding_prop", "_ops"))
_OF_TILES = ("copy_", "fill_", "zero_", "requires_grad_", "detach_")
_LEAF = (
    "a leaf Variable that requires grad, or a view of one, is being used in an in-place operation: "
    "write to parameters under torch.no_grad"
)
_BACKWARD = (torch.autograd.grad.__name__, _Tensor.backward.__name__)
_GRADIENTS = ("grad_outputs", "grad_tensors", "gradient")  # arguments of these
_OF_LISTS = ("_foreach_", "_fused_", "_amp_")  # the operators of optimizers, with DTensor's rules


def owned(tensor: Any) -> Any:
    """A DTensor as a `Distributed`, which is the same object; other values stay as they are."""
    if type(tensor) is DTensor:
        tensor.__class__ = Distributed  # it has no more fields
    return tensor


class Distributed(DTensor):
    """A DTensor that does outside of planned calls as the whole tensor would in plain torch."""

    __slots__ = ()

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one of torch's functions."""
        with torch._C.DisableTorchFunctionSubclass():
            if _tells(function):
                return owned(function(*args, **kwargs or {}))
            kwargs = kwargs or {}
            first = args[0] if args else None  # the one that operators in place write to
            own = isinstance(first, DTensor) and _are_tiles(args, kwargs)
            if own and (_is_elementwise(function) or _is_itself(function, args)):
                try:
                    return owned(function(*args, **kwargs))
                except (NotImplementedError, RuntimeError) as error:
                    _check_no_rule(error)
            return _run(function, args, kwargs)

    if hasattr(DTensor._op_dispatcher, "dispatch"):  # until torch 2.9, in Python

        @classmethod
        def __torch_dispatch__(  # DTensor's results must be of the class of its operands
            cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Run an operator by DTensor's rule."""
            leaves = pytree.tree_leaves((args, kwargs))
            own = [x for x in leaves if type(x) is Distributed]
            for each in own:
                each.__class__ = DTensor
            try:
                return super().__torch_dispatch__(function, types, args, kwargs)
            finally:
                for each in own:
                    each.__class__ = Distributed

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy with tiles of its own; torch's copies of parameters have no gradient."""
        if id(self) not in memo:
            made = self.detach().clone()
            if isinstance(self, torch.nn.Parameter):
                made = torch.nn.Parameter(made)
            elif self.grad is not None:
                made.grad = copy.deepcopy(self.grad, memo)
            memo[id(self)] = made.requires_grad_(self.requires_grad)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as torch's own DTensor, which torch.load knows."""
        plain = DTensor(self._local_tensor, self._spec, requires_grad=self.requires_grad)
        return plain.__reduce_ex__(protocol)


# As DTensor itself: functions that take lists of tensors then take these in lists, too.
lists_of.append(Distributed)
optimizers_lists_of.append(Distributed)


class _View(torch.Tensor):
    """A view of a gathered copy; writing to it writes to the distributed tensor, too."""

    base: Any
    whole: Any

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run one of torch's functions on plain tensors, and write its changes to the tiles."""
        found = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, _View)]
        copies = [_Copy(x.base, x.whole) for x in found]
        with torch._C.DisableTorchFunctionSubclass():
            args, kwargs = pytree.tree_map_only(
                _View, lambda x: x.as_subclass(torch.Tensor), (args, kwargs or {})
            )
        result = function(*args, **kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            for each in copies:
                each.write_back()
            return _with_views(result, copies)


class _Gathered(torch.autograd.Function):
    """A distributed tensor, whole on every rank; its gradient is distributed as the tensor is."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        """Gather the tiles."""
        ctx.set_materialize_grads(False)
        ctx.spec = tensor._spec
        return tensor.full_tensor()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """This rank's tile of the gradient, which is the same on all ranks."""
        return None if grad is None else placed(grad, ctx.spec)


class _Copy:
    """A whole copy of a distributed tensor."""

    def __init__(self, base: Any, whole: Any) -> None:
        self.base, self.whole = base, whole
        self._version, self._node = whole._version, whole.grad_fn

    def write_back(self, always: bool = False) -> None:
        """Write the copy to the tiles if a function wrote to it."""
        if not always and self.whole._version == self._version:
            return
        if self.whole.grad_fn is not self._node and self.base.requires_grad:
            raise RuntimeError(_LEAF)
        _write(self.base, self.whole)


def _run(function: Any, args: Any, kwargs: Any) -> Any:
    """Run a function as the whole tensors would, with DTensor's rule if that is right."""
    special = _SPECIAL.get(function)
    if special is not None:
        return special(*args, **kwargs)
    name = function.__name__
    if name in _BACKWARD:
        return _differentiate(function, args, kwargs)
    flat = _are_tiles(args, kwargs)
    values = (*args, *kwargs.values()) if flat else pytree.tree_leaves((args, kwargs))
    operands = [x for x in values if isinstance(x, DTensor)]
    if name == "new" or name.startswith("new_"):  # a plain tensor of the same type
        return function(operands[0]._local_tensor, *args[1:], **kwargs)
    _check_leaf(function, name, args)
    whole = _runs_whole(function) or "out" in kwargs or _writes_elsewhere(name, args)
    if whole or (_has_tag(name, "reduction") and any(map(_leaves_ranks_empty, operands))):
        return _run_whole(function, args, kwargs)
    given = args, kwargs
    if not flat:
        lift = functools.partial(_lifted, mesh=operands[0].device_mesh)
        given = pytree.tree_map_only(torch.Tensor, lift, given)
    try:
        result = function(*given[0], **given[1])
    except (NotImplementedError, RuntimeError) as error:
        _check_no_rule(error)
        return _run_whole(function, args, kwargs)
    known = set(map(id, operands))
    made = [result] if isinstance(result, DTensor) else pytree.tree_leaves(result)
    new = [x for x in made if isinstance(x, DTensor) and id(x) not in known]
    if any(_is_doubtful(each, operands, name) for each in new):
        return _run_whole(function, args, kwargs)
    shapes = {x.shape for x in operands}
    if isinstance(result, DTensor):
        return _settled(result, shapes)
    result = _added_up(result)
    return pytree.tree_map_only(DTensor, lambda x: _settled(x, shapes), result)


def _differentiate(function: Any, args: Any, kwargs: Any) -> Any:
    """Run a backward pass; plain and distributed tensors may be among what it is given."""
    given = inspect.signature(function).bind(*args, **kwargs)
    name = next((each for each in _GRADIENTS if each in given.arguments), None)
    if name is not None:
        heads, *_ = given.arguments.values()
        given.arguments[name] = _like_heads(heads, given.arguments[name])
    result = function(*given.args, **given.kwargs)
    return pytree.tree_map_only(DTensor, lambda x: _settled(x, {x.shape}), result)


def _like_heads(heads: Any, gradients: Any) -> Any:
    """The gradients of tensors, each distributed if the tensor is, else whole."""
    if isinstance(gradients, (list, tuple)):
        given = heads if isinstance(heads, (list, tuple)) else (heads,)
        if len(given) != len(gradients):
            return gradients  # torch raises its error
        return tuple(map(_like_heads, given, gradients))
    head = heads[0] if isinstance(heads, (list, tuple)) else heads
    is_tile = isinstance(gradients, DTensor)
    if not isinstance(gradients, torch.Tensor) or is_tile == isinstance(head, DTensor):
        return gradients
    return gradients.full_tensor() if is_tile else placed(gradients, head._spec)


def _check_no_rule(error: Exception) -> None:
    """Raise an error again unless DTensor's rules raised it.

    An operator or an exchange may fail on this rank alone, as for lack of memory.
    """
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if not frame.f_globals["__name__"].startswith(_RULES):
        raise error


def _run_whole(function: Any, args: Any, kwargs: Any) -> Any:
    """Run a function on whole tensors, on every rank; rank 0's draws count."""
    copies: list[_Copy] = []
    is_drawn = draws(function)

    initialises = getattr(function, "__module__", None) == "torch.nn.init"

    def whole(x: Any) -> Any:
        made = _Gathered.apply(x.detach() if initialises else x)
        if is_drawn and _shares(made, x._local_tensor):
            made = made.clone()
        if not _shares(made, x._local_tensor):
            copies.append(_Copy(x, made))
        return made

    plain = pytree.tree_map_only(DTensor, whole, (args, kwargs))
    result = function(*plain[0], **plain[1])
    drawn = (
        [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)] if is_drawn else []
    )
    for each in drawn:
        numbers = each.detach().contiguous()
        dist.broadcast(numbers, src=0)
        each.detach().copy_(numbers)
    for copied in copies:  # fused operators do not count the versions of what they write to
        copied.write_back(always=function.__name__.startswith("_fused_"))
    return _with_views(result, copies)


def _check_leaf(function: Any, name: str, args: Any) -> None:
    """Raise RuntimeError, as torch does, if a function would write to a leaf with gradients."""
    writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    first = args[0] if args else None
    if not (writes and isinstance(first, DTensor) and torch.is_grad_enabled()):
        return
    own = getattr(function, "__module__", None) == "torch.nn.init"  # it turns gradients off
    if first.is_leaf and first.requires_grad and name != "requires_grad_" and not own:
        raise RuntimeError(_LEAF)


def _writes_elsewhere(name: str, args: Any) -> bool:
    """Whether a function writes to plain tensors, or to a part of a distributed one."""
    if name == "__setitem__":
        return True
    if not name.endswith("_") or name.endswith("__") or not args:
        return False
    targets = args[0] if isinstance(args[0], (list, tuple)) else args[:1]
    return any(isinstance(x, torch.Tensor) and not isinstance(x, DTensor) for x in targets)


@functools.cache
def overloads(name: str) -> tuple[Any, ...]:
    """The overloads of an operator of torch; that of ``__rsub__`` is ``rsub`` or ``sub``."""
    if name in _BACKWARD:  # the operators of these names are TorchScript's
        return ()
    bare = name.strip("_")
    for each in (bare, bare[1:]) if name.startswith("__") else (name, bare):
        packet = getattr(torch.ops.aten, each, None) if each else None
        if isinstance(packet, torch._ops.OpOverloadPacket):
            known = (getattr(packet, overload) for overload in packet.overloads())
            return tuple(x for x in known if "Tensor" in str(x._schema).split("->")[0])
    return ()


@functools.cache
def _has_tag(name: str, tag: str) -> bool:
    """Whether an operator has a tag; older versions of torch lack some."""
    return any(getattr(torch.Tag, tag, None) in each.tags for each in overloads(name))


@functools.cache
def _tells(function: Any) -> bool:
    """Whether a function gets an attribute, or tells something that takes no elements."""
    known = overloads(function.__name__)
    return function.__name__ == "__get__" or not (
        function in _READS_VALUES
        or function in _SPECIAL
        or not known
        or any("Tensor" in str(each.type) for x in known for each in x._schema.returns)
        or any(each.alias_info is not None for x in known for each in x._schema.arguments)
        or _has_tag(function.__name__, "data_dependent_output")
    )


@functools.cache
def _is_elementwise(function: Any) -> bool:
    """Whether an operator makes each element of one element of every tensor."""
    name = function.__name__
    return not _runs_whole(function) and (name in _OF_TILES or _is_pointwise(name))


def _is_itself(function: Any, args: Any) -> bool:
    """Whether a function makes a view of all of a tensor, as torch does to find its node."""
    return function in (_Tensor.view_as, _Tensor.expand_as) and args[0] is args[1]


def _is_pointwise(name: str) -> bool:
    """Whether all forms of an operator are; ``max`` of one tensor is a reduction."""
    pointwise = any(_has_tag(each, "pointwise") for each in (name, name.strip("_")))
    return pointwise and not _has_tag(name, "reduction") and name not in ("max", "min")


def _are_tiles(args: Any, kwargs: Any) -> bool:
    """Whether arguments are DTensors, and numbers that DTensor takes as they are."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)):
            return False
        plain = isinstance(value, torch.Tensor) and not isinstance(value, DTensor)
        if plain and (value.ndim or value.requires_grad):
            return False
    return "out" not in kwargs


@functools.cache
def draws(function: Any) -> bool:
    """Whether a function draws random numbers."""
    own = getattr(function, "__module__", None) == "torch.nn.init"
    return own or _has_tag(function.__name__, "nondeterministic_seeded")


@functools.cache
def _runs_whole(function: Any) -> bool:
    """Whether DTensor's rules do not count: for all but operators on elements, sums and views."""
    if getattr(function, "__module__", None) in _WHOLE_MODULES or function in _READS_VALUES:
        return True
    name = function.__name__
    if draws(function):
        return True
    if name.endswith("_like") or name.startswith(_OF_LISTS) or not overloads(name):
        return False
    known = name in _OF_TILES or _is_pointwise(name) or _has_tag(name, "reduction")
    return not known and not _may_be_view(name)


def _leaves_ranks_empty(tensor: Any) -> bool:
    """Whether a rank's tile has no elements; some operators fail on those, on that rank only."""
    sizes = [{size} for size in tensor.shape]  # those that tiles have
    for placement, count in zip(tensor.placements, tensor.device_mesh.shape):
        if placement.is_shard():
            firsts = {-(-size // count) for size in sizes[placement.dim]}
            lasts = {n - -(-n // count) * (count - 1) for n in sizes[placement.dim]}
            if min(lasts) <= 0:
                return True
            sizes[placement.dim] = firsts | lasts
    return False


@functools.cache
def _may_be_view(name: str) -> bool:
    """Whether an operator's description says that its results may be views."""
    return name == "__getitem__" or any(
        value.alias_info is not None and not value.alias_info.is_write
        for each in overloads(name)
        for value in each._schema.returns
    )


def _is_doubtful(result: Any, operands: list[Any], name: str) -> bool:
    """Whether DTensor's result may be false, or is a copy where the whole's would be a view."""
    terms = [each for each in result.placements if each.is_partial()]
    if result.requires_grad and not _is_pointwise(name):  # other gradients may be false
        return not terms or any(each.reduce_op != "sum" for each in terms)
    if not _may_be_view(name):
        return False
    same = any(x.shape == result.shape and x.placements == result.placements for x in operands)
    local = result._local_tensor
    return not same and not any(_shares(local, x._local_tensor) for x in operands)


def _added_up(result: Any) -> Any:
    """A list of results, in which numbers that ranks have terms of are added up in one message.

    So do the norms of all gradients.
    """
    alike: dict[Any, list[Any]] = {}
    for each in pytree.tree_leaves(result):
        terms = isinstance(each, DTensor) and any(x.is_partial() for x in each.placements)
        if terms and each.ndim == 0 and not each.requires_grad:
            alike.setdefault((each._spec, each.dtype), []).append(each)
    whole: dict[int, Any] = {}
    for (spec, _), numbers in alike.items():
        joined = torch.stack([each._local_tensor for each in numbers])
        terms = DTensor.from_local(joined, spec.mesh, spec.placements, run_check=False)
        whole.update(zip(map(id, numbers), terms.full_tensor().unbind()))
    return pytree.tree_map_only(DTensor, lambda x: whole.get(id(x), x), result)


def _settled(result: Any, shapes: set[Any]) -> Any:
    """A result without terms; a plain tensor if all ranks hold it, unless it is like an operand."""
    whole = [Replicate() if x.is_partial() else x for x in result.placements]
    if whole != list(result.placements):
        result = result.redistribute(placements=whole)
    if result.shape not in shapes and all(each.is_replicate() for each in whole):
        return result.to_local()
    return owned(result)


def _lifted(tensor: Any, mesh: Any) -> Any:
    """A plain tensor as a DTensor that is whole on every rank; DTensor does so with numbers."""
    if isinstance(tensor, DTensor) or (tensor.ndim == 0 and not tensor.requires_grad):
        return tensor
    tensor = tensor.as_subclass(torch.Tensor)
    return DTensor.from_local(tensor, mesh, (Replicate(),) * mesh.ndim, run_check=False)


def _shares(one: Any, other: Any) -> bool:
    """Whether two plain tensors have their elements in the same memory."""
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


def _with_views(result: Any, copies: list[_Copy]) -> Any:
    """A function's result, in which views of gathered copies know where they come from."""

    def marked(x: Any) -> Any:
        for each in copies:
            if x is each.whole:
                return each.base
            if type(x) is torch.Tensor and _shares(x, each.whole):
                view = x.as_subclass(_View)
                view.base, view.whole = each.base, each.whole
                return view
        return x

    return pytree.tree_map_only(torch.Tensor, marked, result) if copies else result


def placed(whole: Any, spec: Any) -> Any:
    """A tensor placed as another one; of a plain one, which is whole, ranks send nothing."""
    if isinstance(whole, DTensor):
        return whole.redistribute(placements=spec.placements)
    value = whole.as_subclass(torch.Tensor).to(spec.mesh.device_type)
    return owned(distribute_tensor(value, spec.mesh, spec.placements, src_data_rank=None))


def _write(tensor: Any, whole: Any) -> None:
    """Write a whole tensor into a distributed one's tiles."""
    with torch.no_grad():
        tensor._local_tensor.copy_(placed(whole.detach(), tensor._spec)._local_tensor)


def _set_data(tensor: Any, value: Any) -> None:
    """Assign ``tensor.data``; a plain tensor is whole, and is copied."""
    if value.shape != tensor.shape:
        raise PlanError(
            f"data of the shape {tuple(value.shape)} was assigned to a distributed tensor of the "
            f"shape {tuple(tensor.shape)}; expected the same shape: parallelize the changed module"
        )
    made = placed(value.detach(), tensor._spec)
    _Tensor.data.__set__(tensor, made)
    tensor._local_tensor, tensor._spec = made._local_tensor, made._spec


def _set_grad(tensor: Any, value: Any) -> None:
    """Assign ``tensor.grad``; a plain tensor is whole."""
    if value is not None and not isinstance(value, DTensor):
        value = placed(value.detach(), tensor._spec)
    _Tensor.grad.__set__(tensor, value)


def _format(tensor: Any, form: str) -> str:
    """A number as a text; other tensors as DTensor shows them, without the other ranks."""
    return format(tensor.to_local() if tensor.ndim == 0 else repr(tensor), form)


def hook_of_tiles(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A hook of a parameter, which gets a distributed gradient and may return a plain one.

    In plain torch none runs without a gradient, but a call's node reaches all of its parameters.
    """

    def run(gradient: Any) -> Any:
        if gradient is None and not counts_nodes(hook):
            return None
        made = hook(owned(gradient))
        if isinstance(made, torch.Tensor) and not isinstance(made, DTensor):
            made = placed(made.detach(), gradient._spec)
        return made

    return run


def counts_nodes(hook: object) -> bool:
    """Whether a hook is torch's own of several tensors, which counts the nodes that run."""
    return bool(getattr(hook, "__module__", None) == torch.autograd.graph.__name__)


def hook_after(tensor: Any, hook: Callable[[Any], None]) -> Callable[[Any], None]:
    """A hook of a parameter that runs after a gradient was added to its own, if one was."""
    came = False

    def note(gradient: Any) -> None:
        nonlocal came
        came = gradient is not None

    def run(parameter: Any) -> None:
        if came:
            hook(parameter)

    _Tensor.register_hook(tensor, note)
    return run


def _register_hook(tensor: Any, hook: Callable[[Any], Any]) -> Any:
    return _Tensor.register_hook(tensor, hook_of_tiles(hook))


def _register_hook_after(tensor: Any, hook: Callable[[Any], None]) -> Any:
    return _Tensor.register_post_accumulate_grad_hook(tensor, hook_after(tensor, hook))


_SPECIAL: dict[Any, Callable[..., Any]] = {
    _Tensor.register_hook: _register_hook,
    _Tensor.register_post_accumulate_grad_hook: _register_hook_after,
    _Tensor.data.__set__: _set_data,
    _Tensor.grad.__set__: _set_grad,
    _Tensor.__format__: _format,
}
