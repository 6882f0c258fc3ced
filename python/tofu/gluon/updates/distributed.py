"""gluon.Trainer over several processes: every tile is a key of MXNet's parameter server.

Each process partitions over its own workers. Those with equal numbers of workers choose the same
tiles, as they plan the same graph, and exchange these, worker by worker. With others a process
exchanges parts of its tiles (tofu.gluon.updates.exchanged_boxes). No tensor is put together, but
where the optimizer runs on the servers and needs all of it.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any, Callable, Optional

import numpy as np

from tofu import _core
from tofu.boxes import Box
from tofu.errors import ConfigError
from tofu.gluon.processes import cluster
from tofu.gluon.processes.cluster import Cluster
from tofu.gluon.session import messages
from tofu.gluon.session.session import Session
from tofu.gluon.training import views
from tofu.gluon.training.parameter import is_tiled, shape_of, variables_of
from tofu.plans.layout import Layout

from .exchanged_boxes import Described, check_same, common_boxes, packed, unpacked
from .optimizer_probe import updates_elementwise

__all__ = [
    "allreduce",
    "check_kind",
    "connect",
    "forget",
    "is_distributed",
    "of",
    "start",
    "update_on_servers",
]

_ASYNC = (
    "updates of one process at a time; tofu's processes take each step together. Expected "
    "'dist_sync' or 'dist_device_sync'"
)
_OTHERS = ("horovod", "byteps")


@dataclasses.dataclass(frozen=True)
class _Slot:
    """A parameter's keys, one for each box that is exchanged.

    Attributes:
        keys: the keys.
        boxes: the boxes, as a layout.
        contexts: this process's context of each box while it is exchanged.
        tiles: its tiles when it joined.
        workers: for each key, the workers that have the box as their tile; () where others do not.
    """

    keys: tuple[int, ...]
    boxes: Layout
    contexts: tuple[Any, ...]
    tiles: tuple[Box, ...]
    workers: tuple[tuple[int, ...], ...]


@dataclasses.dataclass(eq=False)
class _Connection:
    """A Trainer's connection, its attribute ``_tofu_connection``."""

    cluster: Cluster
    elementwise: bool
    session: Session
    slots: dict[int, _Slot] = dataclasses.field(default_factory=dict)
    steps: int = 0

    def __reduce__(self) -> Any:
        # Copying a parameter copies its Trainer; the copy has no connection.
        return type(None), ()

    def relay(self, arrays: Sequence[Any], source: Layout, target: Layout, *where: Any) -> Any:
        """Copy arrays from one layout to another; `where`: contexts, and arrays to fill."""
        if not arrays:
            return []
        dtype = np.dtype(arrays[0].dtype).name
        source, target = (dataclasses.replace(each, dtype=dtype) for each in (source, target))
        backend = self.session.state.backend
        return backend.relay(backend.tiles(arrays, source), target, *where, blocked=True)


def is_distributed(trainer: Any) -> bool:
    """Whether a Trainer is to exchange gradients with other processes, from tiles."""
    return "dist" in _kind(trainer._kvstore_params["kvstore"]) and len(trainer._contexts) == 1


def of(trainer: Any) -> Optional[_Connection]:
    """The connection of a distributed Trainer, or None."""
    connection: Optional[_Connection] = getattr(trainer, "_tofu_connection", None)
    return connection


def check_kind(trainer: Any, kvstore: Any) -> None:
    """Raise ConfigError for ways of training over several processes that tiles exclude."""
    kind = _kind(kvstore)
    bases = [f"{base.__module__}.{base.__name__}" for base in type(trainer).__mro__]
    for base in bases:
        if base.partition(".")[0] in _OTHERS:
            raise ConfigError(
                f"{base}: reduces whole gradients, and under tofu they are tiles; expected "
                "gluon.Trainer(kvstore='dist_sync'), or MXNET_GRAPH_PASS unset"
            )
    if kind in _OTHERS:
        raise ConfigError(
            f"gluon.Trainer(kvstore={kind!r}): reduces whole gradients, and under tofu they are "
            "tiles; expected 'dist_sync', or MXNET_GRAPH_PASS unset"
        )
    if "dist" not in kind:
        return
    if "async" in kind:
        raise ConfigError(f"gluon.Trainer(kvstore={kind!r}): {_ASYNC}")
    if os.environ.get("DMLC_PS_VAN_TYPE") == "p3":
        raise ConfigError(
            "DMLC_PS_VAN_TYPE=p3: MXNet's P3 store cuts arrays by itself; unset it under tofu"
        )


def connect(trainer: Any, original: Callable[[Any], None], session: Session) -> None:
    """Replace Trainer._init_kvstore, with one connection for all Trainers."""
    if trainer._contains_sparse_weight or trainer._contains_sparse_grad:
        sparse = next(
            p.name for p in trainer._params if (p._stype, p._grad_stype) != ("default", "default")
        )
        raise ConfigError(
            f"gluon.Trainer: parameter {sparse} is sparse; over several processes tofu expects "
            "dense parameters. Make the layer without sparse_grad"
        )
    if trainer._compression_params:
        raise ConfigError(
            "gluon.Trainer(compression_params=...): MXNet's gradient compression does not go with "
            "the exchange of weights and gradients in one message; leave it out"
        )
    params = trainer._kvstore_params
    connected = cluster.connected()

    def make_kvstore() -> Any:
        with _core.Changed(session.state.depth, peeking=True):  # MXNet looks at sizes alone
            original(trainer)
        return trainer._kvstore

    if connected is None:
        if isinstance(params["kvstore"], str):
            cluster.check_environment(_kind(params["kvstore"]))
        connected = Cluster(make_kvstore, session.timeout_s)
    else:
        _share(connected, params)
        with connected.watchdog.waiting("the servers"):
            make_kvstore()
    connected.has_optimizer |= bool(trainer._update_on_kvstore)
    elementwise = updates_elementwise(trainer._optimizer, session.contexts[0])
    trainer._tofu_connection = _Connection(connected, elementwise, session)
    if trainer._update_on_kvstore and not elementwise:
        messages.warn(
            f"{type(trainer._optimizer).__name__} does not update every element by itself: each "
            "step sends whole gradients to the parameter server. With update_on_kvstore=False "
            "it would send tiles, and gather whole tensors in every process"
        )


def start(trainer: Any) -> None:
    """Replace Trainer._init_params: all processes take the values of process 0.

    Raises:
        ConfigError: a process has other parameters than process 0.
    """
    connection = of(trainer)
    assert connection is not None
    ready = [p for p in trainer._params_to_init if not p._deferred_init]
    trainer._params_to_init = [p for p in trainer._params_to_init if p._deferred_init]
    if not ready:
        return
    _flush(trainer)
    values: list[Any] = []
    outs: list[list[Any]] = []
    keys: list[int] = []
    ends = []
    for parameter, boxes in zip(ready, _agreed_boxes(trainer, connection, ready)):
        weights = variables_of(parameter)
        slot = _new_slot(connection, parameter, boxes)
        connection.slots[trainer._param2idx[parameter.name]] = slot
        sent, received, end = _ways(connection, slot, parameter, weights, weights)
        values += [array.copy() for array in sent]
        outs += received
        keys += slot.keys
        ends.append(end)
    connection.cluster.broadcast(keys, values, outs)
    for end in ends:
        end()
    _refresh(trainer)


def allreduce(trainer: Any) -> None:
    """Replace Trainer._allreduce_grads: sum the gradients of all processes."""
    connection = of(trainer)
    assert connection is not None
    _flush(trainer)
    outs: list[Any] = []
    for index, parameter in _fresh(trainer):
        gradients = _gradients(parameter)
        outs += _exchange(connection, index, parameter, gradients, gradients)
    _finish(connection, outs)
    _refresh(trainer)


def update_on_servers(trainer: Any, ignore_stale_grad: bool) -> None:
    """Send the gradients to the servers, and get the weights that their optimizer has updated.

    Raises:
        UserWarning: a gradient is stale, and `ignore_stale_grad` is off. Nothing is sent then.
    """
    connection = of(trainer)
    assert connection is not None
    _flush(trainer)
    fresh = _fresh(trainer, check=not ignore_stale_grad)
    outs: list[Any] = []
    for index, parameter in fresh:
        weights = variables_of(parameter)
        outs += _exchange(connection, index, parameter, _gradients(parameter), weights)
    _finish(connection, outs)
    for _, parameter in fresh:
        for array in variables_of(parameter):
            array._fresh_grad = False
        if is_tiled(parameter):
            parameter._tofu.updates += 1
    _refresh(trainer)


def forget(trainer: Any) -> None:
    """Leave a Trainer to MXNet: it will give all processes the weights of process 0 again."""
    if vars(trainer).pop("_tofu_connection", None) is not None:
        trainer._params_to_init = list(trainer._params)


def _kind(kvstore: Any) -> str:
    kind = kvstore if isinstance(kvstore, str) else getattr(kvstore, "type", "")
    return kind.lower() if isinstance(kind, str) else ""


def _share(connected: Cluster, params: dict[str, Any]) -> None:
    """Let one more Trainer use the connection."""
    kvstore, on_servers = params["kvstore"], params["update_on_kvstore"]
    if not isinstance(kvstore, str) and kvstore is not connected.kvstore:
        raise ConfigError(
            "gluon.Trainer(kvstore=...): a second distributed kvstore in this process; MXNet "
            "connects once. Give all Trainers the same kvstore object, or the same name"
        )
    if connected.has_optimizer or on_servers:
        raise ConfigError(
            "gluon.Trainer: MXNet's servers have one optimizer, and this process has several "
            "distributed Trainers; expected update_on_kvstore=False for each of them"
        )
    params.update(kvstore=connected.kvstore, update_on_kvstore=False)


def _agreed_boxes(
    trainer: Any, connection: _Connection, ready: Sequence[Any]
) -> list[tuple[Box, ...]]:
    """The boxes of each parameter that the processes exchange.

    Raises:
        ConfigError: a process has other parameters than process 0.
    """
    facts: dict[str, Any] = {
        "optimizer": type(trainer._optimizer).__name__,
        "update_on_kvstore": bool(trainer._update_on_kvstore),
        "number of parameters": len(ready),
    }
    tiles = []
    for parameter in ready:
        shape = shape_of(parameter)
        name = f"parameter {trainer._param2idx[parameter.name]}"
        facts[name] = f"{list(shape)} {np.dtype(parameter.dtype).name} {parameter.grad_req}"
        whole = trainer._update_on_kvstore and not connection.elementwise
        boxes = [Box.whole(shape)] if whole else _layout(parameter).boxes
        tiles.append(list(dict.fromkeys(boxes)))
    messages_of_all = connection.cluster.gather(packed(Described(facts, tiles)))
    processes = [unpacked(message) for message in messages_of_all]
    check_same(processes)
    return [common_boxes(each) for each in zip(*(process.tiles for process in processes))]


def _new_slot(connection: _Connection, parameter: Any, boxes: tuple[Box, ...]) -> _Slot:
    layout = _layout(parameter)
    workers = tuple(
        tuple(worker for worker, tile in enumerate(layout.boxes) if tile == box) for box in boxes
    )
    holders = (
        next((n for n, tile in enumerate(layout.boxes) if box.common(tile) == box), 0)
        for box in boxes
    )
    return _Slot(
        tuple(connection.cluster.new_keys(len(boxes))),
        dataclasses.replace(layout, boxes=boxes),
        tuple(variables_of(parameter)[holder].context for holder in holders),
        layout.boxes,
        workers if all(workers) else (),
    )


def _layout(parameter: Any) -> Layout:
    """The tiles of a parameter; one, if it is not tiled."""
    if is_tiled(parameter):
        tiles: Layout = parameter._tofu.layout
        return tiles
    shape = shape_of(parameter)
    return Layout(shape, np.dtype(parameter.dtype).name, (Box.whole(shape),))


def _fresh(trainer: Any, *, check: bool = False) -> list[tuple[int, Any]]:
    """The parameters with a gradient that no step has used, by index.

    Others are left alone in all processes: a step of one process that the others do not take
    is noticed after TOFU_TIMEOUT seconds.
    """
    fresh = []
    for index, parameter in enumerate(trainer._params):
        if parameter.grad_req == "null":
            continue
        if parameter._data is None:
            parameter.list_grad()  # raises MXNet's own error for such a parameter
        if all(array._fresh_grad for array in variables_of(parameter)):
            fresh.append((index, parameter))
        elif check:
            raise UserWarning(messages.stale_text(parameter))
    return fresh


def _gradients(parameter: Any) -> list[Any]:
    tiled = is_tiled(parameter)
    tiles: list[Any] = parameter._tofu.gradients.tiles() if tiled else parameter._grad
    return tiles


def _ways(
    connection: _Connection,
    slot: _Slot,
    parameter: Any,
    arrays: Sequence[Any],
    targets: Sequence[Any],
) -> tuple[list[Any], list[list[Any]], Callable[[], Any]]:
    """Arrays to send a parameter's tiles to the servers, and to receive the results.

    Returns:
        The array to send under each key; those to receive it; and what to call then.
    """
    layout = _layout(parameter)
    if slot.workers and slot.tiles == layout.boxes:
        sent = [arrays[workers[0]] for workers in slot.workers]
        return sent, [[targets[each] for each in workers] for workers in slot.workers], list
    sent = connection.relay(arrays, layout, slot.boxes, slot.contexts)
    contexts = [target.context for target in targets]
    end = functools.partial(connection.relay, sent, slot.boxes, layout, contexts, targets)
    return sent, [[array] for array in sent], end


def _exchange(
    connection: _Connection,
    index: int,
    parameter: Any,
    gradients: Sequence[Any],
    targets: Sequence[Any],
) -> Sequence[Any]:
    """Push gradients under a parameter's keys, and pull. Returns the arrays that are written."""
    slot = connection.slots[index]
    sent, received, end = _ways(connection, slot, parameter, gradients, targets)
    for key, array, outs in zip(slot.keys, sent, received):
        connection.cluster.exchange(key, array, outs, -index)
    end()
    return targets


def _finish(connection: _Connection, outs: Sequence[Any]) -> None:
    connection.steps += 1
    with connection.cluster.watchdog.waiting(
        f"the gradients of all processes in step {connection.steps}"
    ):
        cluster.wait_for(outs)


def _flush(trainer: Any) -> None:
    for state in {p._tofu.state for p in trainer._params if is_tiled(p)}:
        views.flush(state.views)


def _refresh(trainer: Any) -> None:
    for state in {p._tofu.state for p in trainer._params if is_tiled(p)}:
        views.refresh(state.views)
