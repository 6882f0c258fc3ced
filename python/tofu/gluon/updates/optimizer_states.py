"""Makes the optimizer states of tiled parameters before an update writes any weight.

MXNet's updater makes a state when it first updates a weight, and does not wait for it. If the
memory for it is missing on one worker, the other workers would have updated their tiles by the
time the script learns of it, and the state would hold whatever is in its memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mxnet.ndarray import NDArray

from tofu.gluon.session.async_errors import named, naming

__all__ = ["make_states"]


def make_states(
    optimizer: Any, updaters: Sequence[Any], parameters: Iterable[tuple[int, Any, Sequence[Any]]]
) -> None:
    """Make the states that are missing, all or none, and wait for them.

    Args:
        optimizer: the Trainer's.
        updaters: one per worker.
        parameters: index, parameter, and the part of it that each worker updates.

    Raises:
        MXNetError: a state cannot be made, most likely for want of memory.
    """
    new_states = []
    for index, parameter, parts in parameters:
        for updater, tile in zip(updaters, parts):
            if index in updater.states:
                continue
            with named(parameter._tofu.session), _naming(parameter, tile.context):
                state = optimizer.create_state_multi_precision(index, tile)
            new_states.append((updater, index, parameter, tile.context, state))
    for _, _, parameter, where, state in new_states:
        with named(parameter._tofu.session), _naming(parameter, where):
            for array in _arrays(state):
                array.wait_to_read()
    for updater, index, _, _, state in new_states:
        updater.states[index] = state
        updater.states_synced[index] = True


def _naming(parameter: Any, where: Any) -> contextlib.AbstractContextManager[None]:
    return naming(f"parameter {parameter.name}: making its optimizer state on {where}")


def _arrays(state: Any) -> Iterator[Any]:
    """The arrays of an optimizer's state, which may nest tuples."""
    if isinstance(state, NDArray):
        yield state
    elif isinstance(state, (tuple, list)):
        for part in state:
            yield from _arrays(part)
