"""gluon.Trainer over several processes: every tile is a key of MXNet's parameter server.

Each process partitions over its own workers, and all choose the same tiles, as they plan the
same graph. So the processes exchange tiles, worker by worker, and no tensor is put together.
A whole tensor is one key where it is not tiled, and where the optimizer runs on the servers
and needs all of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any, Callable, Optional

import mxnet as mx
from mxnet import autograd

from tofu.errors import ConfigError
from tofu.gluon.processes import cluster
from tofu.gluon.processes.cluster import Cluster
from tofu.gluon.session import messages
from tofu.gluon.session.session import Session

from . import views
from .optimizer_probe import updates_elementwise
from .parameter import is_tiled, peeking

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
    """A parameter's keys.

    Attributes:
        keys: one per different tile, or one.
        workers: for each key, the workers that hold its tile; empty for a whole tensor.
    """

    keys: tuple[int, ...]
    workers: tuple[tuple[int, ...], ...] = ()


@dataclasses.dataclass(eq=False)
class _Connection:
    """A Trainer's connection, its attribute ``_tofu_connection``."""

    cluster: Cluster
    elementwise: bool
    slots: dict[int, _Slot] = dataclasses.field(default_factory=dict)
    steps: int = 0

    def __reduce__(self) -> Any:
        # Copying a parameter copies its Trainer; the copy has no connection.
        return type(None), ()


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
    """Do what Trainer._init_kvstore does, with one connection for all Trainers."""
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
        with peeking(session.state):  # MXNet looks at sizes alone
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
    trainer._tofu_connection = _Connection(connected, elementwise)
    if trainer._update_on_kvstore and not elementwise:
        messages.warn(
            f"{type(trainer._optimizer).__name__} does not update every element by itself: each "
            "step sends whole gradients to the parameter server. With update_on_kvstore=False "
            "it would send tiles, and gather whole tensors in every process"
        )


def start(trainer: Any) -> None:
    """Do what Trainer._init_params does: all processes take the values of process 0.

    Raises:
        ConfigError: this process has other tiles than process 0.
    """
    own = of(trainer)
    assert own is not None
    ready = [p for p in trainer._params_to_init if not p._deferred_init]
    trainer._params_to_init = [p for p in trainer._params_to_init if p._deferred_init]
    if not ready:
        return
    _flush(trainer)
    _check_agreement(trainer, own, ready)
    values: list[Any] = []
    outs: list[list[Any]] = []
    gathered: list[tuple[Any, Any]] = []
    counts = []
    for parameter in ready:
        groups = _tile_groups(parameter, own, on_servers=trainer._update_on_kvstore)
        if groups:
            values += [parameter._data[workers[0]].copy() for workers in groups]
            outs += [[parameter._data[worker] for worker in workers] for workers in groups]
        elif is_tiled(parameter):
            whole = parameter._tofu.gather(parameter._data, parameter._ctx_list[0])
            gathered.append((parameter, whole))
            values.append(whole.copy())
            outs.append([whole])
        else:
            values.append(parameter._data[0].copy())
            outs.append([parameter._data[0]])
        counts.append((parameter, groups))
    keys = iter(own.cluster.broadcast(values, outs))
    for parameter, groups in counts:
        taken = tuple(next(keys) for _ in range(max(1, len(groups))))
        own.slots[trainer._param2idx[parameter.name]] = _Slot(taken, groups)
    _scatter(gathered)
    _refresh(trainer)


def allreduce(trainer: Any) -> None:
    """Do what Trainer._allreduce_grads does: sum the gradients of all processes."""
    own = of(trainer)
    assert own is not None
    _flush(trainer)
    outs: list[Any] = []
    gathered = []
    for index, parameter in _fresh(trainer):
        gradients = _gradients(parameter)
        slot = own.slots[index]
        if slot.workers or not is_tiled(parameter):
            outs += _exchange(own, index, gradients, gradients)
        else:
            whole = parameter._tofu.gather(gradients, parameter._ctx_list[0])
            outs += _exchange(own, index, [whole], [whole])
            gathered.append((gradients, parameter, whole))
    _finish(own, outs)
    for gradients, parameter, whole in gathered:
        with autograd.pause():
            parameter._tofu.scatter(whole, out=gradients)
    _refresh(trainer)


def update_on_servers(trainer: Any, ignore_stale_grad: bool) -> None:
    """Send the gradients to the servers, and get the weights that their optimizer has updated.

    Raises:
        UserWarning: a gradient is stale, and `ignore_stale_grad` is off. Nothing is sent then.
    """
    own = of(trainer)
    assert own is not None
    _flush(trainer)
    fresh = _fresh(trainer, check=not ignore_stale_grad)
    outs: list[Any] = []
    gathered = []
    for index, parameter in fresh:
        gradients = _gradients(parameter)
        slot = own.slots[index]
        if slot.workers or not is_tiled(parameter):
            outs += _exchange(own, index, gradients, parameter._data)
        else:
            where = parameter._ctx_list[0]
            gradient = parameter._tofu.gather(gradients, where)
            whole = mx.nd.empty(gradient.shape, where, gradient.dtype)
            outs += _exchange(own, index, [gradient], [whole])
            gathered.append((parameter, whole))
    _finish(own, outs)
    _scatter(gathered)
    for _, parameter in fresh:
        for array in parameter._data:
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


def _tile_groups(
    parameter: Any, own: _Connection, *, on_servers: bool
) -> tuple[tuple[int, ...], ...]:
    """The workers that hold each tile; () for a parameter that is sent whole."""
    if not is_tiled(parameter) or (on_servers and not own.elementwise):
        return ()
    workers_of: dict[Any, list[int]] = {}
    for worker, box in enumerate(parameter._tofu.layout.boxes):
        workers_of.setdefault(box, []).append(worker)
    return tuple(map(tuple, workers_of.values()))


def _check_agreement(trainer: Any, own: _Connection, ready: Sequence[Any]) -> None:
    digest = hashlib.sha256()
    workers = 0
    for parameter in ready:
        boxes: Any = None
        if is_tiled(parameter):
            boxes = [list(box) for box in parameter._tofu.layout.boxes]
            workers = len(boxes)
        index = trainer._param2idx[parameter.name]
        described = index, parameter.shape, str(parameter.dtype), parameter.grad_req, boxes
        digest.update(repr(described).encode())
    digest.update(repr((type(trainer._optimizer).__name__, own.elementwise)).encode())
    own.cluster.agree(
        "gluon.Trainer: the tiles of the parameters",
        {
            "workers": workers,
            "parameters": len(ready),
            "tiled parameters": sum(map(is_tiled, ready)),
            "update_on_kvstore": int(bool(trainer._update_on_kvstore)),
        },
        digest.digest(),
        "expected the same script, batch size and TOFU_* settings in all processes",
    )


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
            parameter.list_grad()  # raises what MXNet says of such a parameter
        if all(array._fresh_grad for array in parameter._data):
            fresh.append((index, parameter))
        elif check:
            raise UserWarning(messages.stale_text(parameter))
    return fresh


def _gradients(parameter: Any) -> list[Any]:
    tiled = is_tiled(parameter)
    tiles: list[Any] = parameter._tofu.gradients.tiles() if tiled else parameter._grad
    return tiles


def _exchange(
    own: _Connection, index: int, gradients: Sequence[Any], outs: Sequence[Any]
) -> list[Any]:
    """Push gradients under a parameter's keys, and pull. Returns the arrays that are written."""
    slot = own.slots[index]
    written = []
    for key, workers in zip(slot.keys, slot.workers or ((0,),)):
        targets = [outs[worker] for worker in workers]
        own.cluster.exchange(key, gradients[workers[0]], targets, -index)
        written += targets
    return written


def _finish(own: _Connection, outs: Sequence[Any]) -> None:
    own.steps += 1
    with own.cluster.watchdog.waiting(f"the gradients of all processes in step {own.steps}"):
        cluster.wait_for(outs)


def _scatter(gathered: Sequence[tuple[Any, Any]]) -> None:
    with autograd.pause():
        for parameter, whole in gathered:
            parameter._tofu.scatter(whole, out=parameter._data)


def _flush(trainer: Any) -> None:
    for state in {p._tofu.state for p in trainer._params if is_tiled(p)}:
        views.flush(state.views)


def _refresh(trainer: Any) -> None:
    for state in {p._tofu.state for p in trainer._params if is_tiled(p)}:
        views.refresh(state.views)
