"""Gradients that recordings deliver without autograd, and their receivers.

After a backward call they become the parameters' gradients, together with those that autograd has
computed for whole arrays; in ``autograd.grad`` they are part of the result. Recordings do not read
these arrays, so ``autograd.grad`` asks for the gradients of the recordings' sentinels, too, and
collects the gradients that recordings deliver meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional

from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.ndarray import NDArray

from tofu.errors import GradientError
from tofu.gluon.session import autograd_hooks
from tofu.gluon.session.session import active
from tofu.gluon.session.state import Parts, State, WholeArray

from . import outputs
from .gradients import is_overwritten
from .parameter import gated_tiles, is_tiled
from .views import parameter_of

__all__ = ["after_backward", "before_backward", "grad"]

_BEFORE_RECORDINGS = -1  # the serial number of a whole array among recordings


def before_backward(state: State) -> None:
    """Prepare the gradients of tiled parameters for a backward call."""
    for parameter in _receivers(state):
        parameter._tofu.gradients.before_backward()
    for parameter in _gated(state):
        parameter._tofu.gradients.watch_marks()


def after_backward(state: State) -> None:
    """Take the gradients of a backward call that its recordings and whole arrays deliver."""
    for parameter in _gated(state):
        parameter._tofu.gradients.settle_marks()
    if state.collected is None:
        for view in list(state.views):
            _deliver_whole(view)
    for parameter in _receivers(state):
        if state.collected is None:
            parameter._tofu.gradients.after_backward()
        else:
            state.collected[parameter] = parameter._tofu.gradients.take_parts()


def _deliver_whole(view: WholeArray) -> None:
    """Hand a parameter the gradient that autograd has computed for its whole array, if any."""
    parameter, tiles = view.owner(), view.take_gradient()
    gradients = None if parameter is None else parameter._tofu.gradients
    if tiles is None or gradients is None:
        return
    assert parameter is not None
    if is_overwritten(parameter):
        gradients.hand_over(_BEFORE_RECORDINGS, tiles, None)
    else:
        gradients.add(tiles)


def grad(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap autograd.grad: also differentiate with respect to tiled parameters."""

    def _grad(
        heads: Any,
        variables: Any,
        head_grads: Any = None,
        retain_graph: Optional[bool] = None,
        create_graph: bool = False,
        train_mode: bool = True,
    ) -> Any:
        options = (head_grads, retain_graph, create_graph, train_mode)
        session = active()
        listed = [heads] if isinstance(heads, NDArray) else heads
        asked = [variables] if isinstance(variables, NDArray) else list(variables)
        owners = _owners(asked) if session is not None else []
        if session is not None and create_graph:
            _pass_no_recording(session.state, listed, list(zip(asked, owners)))
        if session is None or not any(owner is not None for owner in owners):
            return original(heads, variables, *options)
        # Without the lock, another thread's backward call could free these recordings.
        with session.state.calls.lock:
            return _grad_of_tiles(
                session.state,
                lambda arrays: original(heads, arrays, *options),
                listed,
                list(zip(asked, owners)),
            )

    return _grad


def _grad_of_tiles(
    state: State,
    original: Callable[[Sequence[Any]], Any],
    heads: Sequence[Any],
    asked: Sequence[tuple[Any, Any]],
) -> Any:
    """Gradients with respect to `asked`: arrays, each with the parameter that owns it or None."""
    sentinels = _sentinels(state, heads)
    if not sentinels:
        return original([array for array, _ in asked])
    names = set().union(*map(autograd_hooks.inputs_of, heads))
    variables_of_each = [_variables(array, owner, names) for array, owner in asked]
    flat = [array for arrays in variables_of_each for array in arrays]
    delivered: Parts = {}
    state.collected = delivered
    try:
        computed = iter(original([*flat, *sentinels]))
    finally:
        state.collected = None
    gradients_of_each = [[next(computed) for _ in arrays] for arrays in variables_of_each]
    return [
        gradients[0] if owner is None else _result(array, owner, gradients, delivered)
        for (array, owner), gradients in zip(asked, gradients_of_each)
    ]


def _variables(array: Any, owner: Optional[Any], names: set[str]) -> list[Any]:
    """The variables to differentiate by for an array: itself and the tiles of its parameter.

    names: of the variables in the graph; others are left out if the array is a parameter's.
    """
    if owner is None:
        return [array]
    variables = [*gated_tiles(owner), array]
    return [each for each in variables if names & autograd_hooks.inputs_of(each)]


def _pass_no_recording(
    state: State, heads: Sequence[Any], asked: Sequence[tuple[Any, Any]]
) -> None:
    """Compute heads once more that recordings have computed, if gradients come out of these.

    Autograd knows no gradient of such gradients, and would leave out what the script computes
    with them. The heads then are as if their blocks had not been partitioned.

    Raises:
        GradientError: a gradient comes out of a recording that cannot be repeated.
    """
    if _from_recording(state, heads, asked) is None:
        return
    if all(owner is None for _, owner in asked):  # a parameter's tiles have no such gradient
        _repeat(state, heads)
    name = _from_recording(state, heads, asked)
    if name is not None:
        raise GradientError(
            f"autograd.grad: create_graph=True, but the gradient of {name} comes from a "
            "partitioned block and has no gradient itself; expected create_graph=False, or heads "
            "that are outputs of blocks that are never hybridized and draw no random numbers: "
            "those run whole then. Else run without tofu, or never hybridized and with "
            "TOFU_HYBRIDIZE=0"
        )


def _from_recording(
    state: State, heads: Sequence[Any], asked: Sequence[tuple[Any, Any]]
) -> Optional[str]:
    """The first of the asked arrays whose gradient comes out of a recording, or None."""
    with state.calls.lock:
        sentinels = set().union(*map(autograd_hooks.inputs_of, _sentinels(state, heads)))
        for array, owner in asked if sentinels else ():
            if owner is not None:
                return f"parameter {owner.name}"
            if autograd_hooks.pass_by(heads, autograd_hooks.inputs_of(array), sentinels):
                return "an array"
    return None


def _repeat(state: State, heads: Sequence[Any]) -> None:
    """Have autograd record, operator by operator, the calls of blocks whose outputs are heads."""
    recordings = {recorded.serial: recorded for recorded in state.calls.recorded()}
    results: dict[int, Sequence[Any]] = {}
    for head in heads:
        made_by = outputs.origin(head)
        recorded = None if made_by is None else recordings.get(made_by.serial)
        if made_by is None or recorded is None or recorded.repeat is None:
            continue
        if made_by.serial not in results:
            results[made_by.serial] = recorded.repeat()
        outputs.replace(head, results[made_by.serial][made_by.output])


def _owners(arrays: Sequence[Any]) -> list[Any]:
    """The tiled parameter whose value each array is, or None."""
    owners = [parameter_of(array) for array in arrays]
    return [owner if is_tiled(owner) else None for owner in owners]


def _sentinels(state: State, heads: Sequence[Any]) -> list[Any]:
    """The sentinels of the recordings that compute the heads."""
    inputs = set().union(*map(autograd_hooks.inputs_of, heads))
    sentinels = (recorded.sentinel_in(inputs) for recorded in state.calls.recorded())
    return [sentinel for sentinel in sentinels if sentinel is not None]


def _result(array: Any, owner: Any, gradients: Sequence[Any], delivered: Parts) -> Any:
    """The whole gradient of a parameter, added up over all that computed a part of it.

    gradients: those of ``_variables``.
    """
    state, number = owner._tofu, len(gated_tiles(owner))
    parts = [
        state.parts_of(tiles, layout, state.layout) for tiles, layout in delivered.get(owner, [])
    ]
    if number and len(gradients) >= number:
        if state.gradients.was_reached:
            parts.append(gradients[:number])
        gradients = gradients[number:]
    if not parts and not gradients:
        raise MXNetError(
            f"autograd.grad: parameter {owner.name} is unreachable from the outputs; expected "
            "one that they are computed by"
        )
    with autograd.pause():
        sums = [tiles[0] if len(tiles) == 1 else sum(tiles) for tiles in zip(*parts)]
        wholes = [state.gather(sums, array.context)] if sums else []
        return sum([*wholes, *gradients][1:], [*wholes, *gradients][0])


def _receivers(state: State) -> list[Any]:
    return [p for p in state.tiled if p._tofu.gradients is not None and is_overwritten(p)]


def _gated(state: State) -> list[Any]:
    return [p for p in state.tiled if p._tofu.gradients is not None and gated_tiles(p)]
