"""``enable`` and ``disable``: patch tofu into MXNet, and remove it again."""

from __future__ import annotations

import atexit
import faulthandler
import functools
import inspect
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Optional, Union

from mxnet import autograd as mx_autograd
from mxnet import gluon
from mxnet import np as mx_np
from mxnet.base import _LIB
from mxnet.module import Module
from mxnet.module.executor_group import DataParallelExecutorGroup
from mxnet.monitor import Monitor
from mxnet.ndarray import NDArray

from tofu import exit_status, uncaught
from tofu.config import MXNET_ENVIRONMENT, Config
from tofu.errors import ConfigError
from tofu.mx.run import error_list
from tofu.plans.report_level import set_level

from .blocks import block, block_call, unhybridized
from .modules import module
from .processes import cluster
from .session import async_errors, backward_calls, messages, session
from .session.session import Session
from .session.state import State
from .training import delivery, parameter, views
from .updates import checkpoints, trainer, trainer_states

__all__ = ["disable", "enable", "look_back"]


def enable(
    workers: Optional[int] = None,
    device: Optional[str] = None,
    log: Optional[str] = None,
    *,
    fetch: Optional[str] = None,
    plan: Union[str, os.PathLike[str], None] = None,
    search: Optional[str] = None,
    pins: Optional[Mapping[str, Union[int, Sequence[int]]]] = None,
    allow_replication: Union[bool, str, None] = None,
    objective: Optional[str] = None,
    machine: Union[str, os.PathLike[str], None] = None,
    memory: Optional[str] = None,
    recompute: Optional[str] = None,
    keep_fetched: Optional[str] = None,
    strict: Optional[bool] = None,
    hybridize: Optional[bool] = None,
) -> None:
    """Run blocks partitioned from now on.

    Calling it again with the same settings does nothing. With other settings, it turns
    tofu off and on again.

    Args:
        workers: number of workers; None: TOFU_WORKERS, else as many as the saved plan is
            for, else all GPUs, else 2.
        device: "gpu" or "cpu"; None: TOFU_DEVICE, else "gpu" where there is one.
        log: a level that TOFU_LOG accepts; None: TOFU_LOG.
        fetch: "multifetch" or "plain"; None: TOFU_FETCH, else multifetch on CPUs.
        plan: a file that ``tofu plan --save`` wrote; None: TOFU_PLAN, else none.
        search: how to search, one of config.MODES; None: TOFU_SEARCH, else "tofu".
        pins: parameter to the dimension that all steps, or each one, cut; None: TOFU_PINS.
        allow_replication: whether large tensors may stay whole where that communicates
            less; "2%": as long as no worker holds so much more than if all are cut; None:
            TOFU_REPLICATION, else not.
        objective: what the search minimises, "bytes" or "time"; None: TOFU_OBJECTIVE, else bytes.
        machine: the machine file, or the name of a machine, that predicts times; None:
            TOFU_MACHINE.
        memory: the memory that a worker may hold, such as "12GiB"; the cheapest plan found that
            fits is used, and tensors may stay whole unless allow_replication is False. None:
            TOFU_MEMORY, else the GPUs' memory.
        recompute: which activations the backward pass computes again: "auto" (as few as the memory
            limit needs), "none" or "all" (that save memory); None: TOFU_RECOMPUTE, else auto.
        keep_fetched: memory, such as "512MiB", by which a worker's peak may grow to keep fetched
            regions instead of fetching them again; "auto": all that is free; None:
            TOFU_KEEP_FETCHED, else none.
        strict: whether a block that would run serially is an error; None: TOFU_STRICT, else
            it is warned of.
        hybridize: whether blocks that the script never hybridizes are partitioned, too; None:
            TOFU_HYBRIDIZE, else they are.

    Raises:
        ConfigError: a setting has a value that tofu cannot use here.
    """
    uncaught.end_runs()
    config = Config.from_arguments(
        "tofu.enable",
        {
            "workers": workers, "device": device, "log": log, "fetch": fetch, "plan": plan,
            "search": search, "objective": objective, "machine": machine, "memory": memory,
            "recompute": recompute, "keep_fetched": keep_fetched,
        },
        pins,
        {"replication": allow_replication, "strict": strict, "hybridize": hybridize},
    )  # fmt: skip
    new = Session.from_config(config)
    old = session.active()
    if old == new:
        return
    if old is not None:
        new.state.lookers = old.state.lookers  # they look in for longer than a session
    disable()
    error_list.reserve()
    error_list.take_turns()
    set_level(new.log_level)
    _set_environment(new.state)
    _name_crashes()
    _patch_mxnet(new.state)
    session.activate(new)


def disable() -> None:
    """Restore MXNet's own functions, and make every parameter whole again."""
    ended = session.active()
    if ended is None:
        return
    session.activate(None)
    state = ended.state
    state.calls.closed = True
    for one in list(state.trainers):
        trainer_states.merge_states(one)
    for one in list(state.tiled):
        parameter.untile(one)
    state.blocks.clear()
    state.traces.clear()
    while state.undo:
        state.undo.pop()()


def look_back() -> None:
    """Tell at the end of the script if nothing was partitioned; an error under TOFU_STRICT."""
    script = exit_status.Script()

    def end() -> None:
        current = session.active()
        has_failed = hasattr(sys, "last_value") or script.status() != 0
        if current is None or has_failed or uncaught.is_interactive():
            return
        module = getattr(sys.modules.get("__main__"), "__spec__", None)
        if module is not None and module.name.startswith("tofu."):  # its own message says more
            return
        if messages.nothing_partitioned(current) or _has_absent_pins(current):
            # Python takes no exit status from here.
            sys.stdout.flush()
            os._exit(uncaught.BAD_INPUT)

    if multiprocessing.parent_process() is None:  # data loaders' processes train nothing
        atexit.register(end)


def _has_absent_pins(current: Session) -> bool:
    """Whether no graph had the tensor of a pin; reports it, for scripts without Trainers."""
    try:
        messages.check_pins(current)
    except ConfigError as error:
        print(f"tofu: {error}", file=sys.stderr, flush=True)
        return True
    return False


def _set_environment(state: State) -> None:
    for name, value in MXNET_ENVIRONMENT.items():
        before = os.environ.get(name)
        os.environ[name] = value
        state.undo.append(_restorer(name, before))


def _name_crashes() -> None:
    """End a process that crashes, and print the script's lines; MXNet's handler does neither.

    It ends the engine on the thread that crashed, which may wait for a lock of its own. Python can
    not put it back, so a process keeps this one.
    """
    if not faulthandler.is_enabled() and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        faulthandler.enable(2)


def _restorer(name: str, before: Optional[str]) -> Callable[[], None]:
    def restore() -> None:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before

    return restore


def _patch_mxnet(state: State) -> None:
    seams: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (Module, "init_optimizer", module.init_optimizer),
        (Module, "update", module.update),
        (Monitor, "install", module.install_monitor),
        (DataParallelExecutorGroup, "_bind_ith_exec", module.bind_executor),
        (DataParallelExecutorGroup, "_collect_arrays", module.collect_arrays),
        (gluon.Block, "__call__", block_call.call),
        (gluon.HybridBlock, "_build_cache", block.build_cache),
        (gluon.HybridBlock, "_call_cached_op", block.call_cached_op),
        (gluon.HybridBlock, "forward", unhybridized.forward),
        (gluon.nn.Sequential, "forward", unhybridized.forward),
        (gluon.Trainer, "__init__", trainer.init),
        (gluon.Trainer, "_init_kvstore", trainer.init_kvstore),
        (gluon.Trainer, "_init_params", trainer.init_params),
        (gluon.Trainer, "_allreduce_grads", trainer.allreduce_grads),
        (gluon.Trainer, "_update", trainer.update),
        (gluon.Trainer, "save_states", trainer_states.save_states),
        (gluon.Trainer, "load_states", trainer_states.load_states),
        (gluon.Parameter, "grad", parameter.note_reading),
        (gluon.ParameterDict, "zero_grad", parameter.zero_grad),
        (gluon.ParameterDict, "save", checkpoints.once),
        (gluon.Block, "save_parameters", checkpoints.once),
        (gluon.HybridBlock, "export", checkpoints.once),
        (mx_autograd, "grad", delivery.grad),
        (NDArray, "grad", views.grad),
        (NDArray, "_fresh_grad", views.fresh_grad),
        (mx_np.ndarray, "grad", views.grad),
        # Every backward call of MXNet's Python goes through this one function.
        (_LIB, "MXAutogradBackwardEx", _backward),
        *((_LIB, name, async_errors.settling) for name in async_errors.READERS),
        (_LIB, "MXGetLastError", async_errors.explaining),
        (_LIB, "MXKVStoreCreate", cluster.connecting),
        *((_LIB, name, cluster.meeting) for name in cluster.MEETINGS),
        (_LIB, "MXNDArraySave", checkpoints.saving_arrays),
        (_LIB, "MXSymbolSaveToFile", checkpoints.saving_symbol),
    ]
    for owner, name, replacement in seams:
        original = getattr(owner, name)
        setattr(owner, name, _named_alike(replacement(original), original))
        state.undo.append(functools.partial(setattr, owner, name, original))
        for heir in _decorated(owner, name, original):
            method = vars(heir)[name]
            setattr(heir, name, _named_alike(replacement(method), method))
            state.undo.append(functools.partial(setattr, heir, name, method))


def _named_alike(replacement: Any, original: Any) -> Any:
    """Give a function the name of that which it replaces, for errors about its arguments."""
    if not inspect.isfunction(original):
        return replacement
    return functools.update_wrapper(replacement, original)


def _decorated(owner: Any, name: str, original: Any) -> Iterator[type]:
    """Subclasses that have a copy of a method: ``use_np`` decorates inherited ones, too."""
    if not isinstance(owner, type):
        return
    heir: type
    for heir in owner.__subclasses__():
        if inspect.unwrap(vars(heir).get(name, owner)) is original:
            yield heir
        yield from _decorated(heir, name, original)


def _backward(original: Callable[..., int]) -> Callable[..., int]:
    def backward(*args: Any) -> int:
        current = session.active()
        if current is None or backward_calls.in_operator():
            return original(*args)
        state = current.state

        def before() -> None:
            views.before_backward(state.views)  # copy the script's writes into the tiles
            delivery.before_backward(state)

        def after() -> None:
            with state.changing:  # else a thread reads an old gradient, which later updates take
                delivery.after_backward(state)
                views.after_backward(state.views)  # and the new gradients into the script's arrays

        with async_errors.named(current), async_errors.explaining_once(current):
            return state.calls.run(original, args, before, after)

    return backward
