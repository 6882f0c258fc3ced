"""``enable`` and ``disable``: patch tofu into MXNet, and remove it again."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional, Union

from mxnet import autograd as mx_autograd
from mxnet import gluon
from mxnet.base import _LIB

from tofu.config import MXNET_ENVIRONMENT, Config, parse_workers

from . import async_errors, block, delivery, messages, parameter, session, trainer, views
from .session import Session
from .state import State

__all__ = ["disable", "enable"]


def enable(
    workers: Optional[int] = None,
    device: Optional[str] = None,
    log: Optional[str] = None,
    *,
    fetch: Optional[str] = None,
    plan: Union[str, os.PathLike[str], None] = None,
    search: Optional[str] = None,
    pins: Optional[Mapping[str, Union[int, Sequence[int]]]] = None,
    allow_replication: Optional[bool] = None,
    strict: Optional[bool] = None,
) -> None:
    """Run hybridized blocks partitioned from now on.

    Calling it again with the same settings does nothing. With other settings, it turns
    tofu off and on again.

    Args:
        workers: number of workers; None: TOFU_WORKERS, else as many as the saved plan is
            for, else all GPUs, else 2.
        device: "gpu" or "cpu"; None: TOFU_DEVICE, else "gpu" where there is one.
        log: a level that TOFU_LOG accepts; None: TOFU_LOG.
        fetch: "multifetch" or "plain"; None: TOFU_FETCH, else multifetch on CPUs.
        plan: a file that ``tofu plan --save`` wrote; None: TOFU_PLAN, else none.
        search: the search mode, one of config.MODES; None: TOFU_SEARCH, else "tofu".
        pins: parameter -> the dimension to cut, one for all steps or one per step; None:
            TOFU_PINS.
        allow_replication: whether large tensors may stay whole if that communicates less;
            None: TOFU_REPLICATION, else no.
        strict: whether a block that would run serially is an error instead of a warning;
            None: TOFU_STRICT, else no.

    Raises:
        ConfigError: a setting has a value that tofu cannot use here.
    """
    config = _config(workers, device, log, fetch, plan, search, pins)
    if allow_replication is not None:
        config = dataclasses.replace(config, replication=allow_replication)
    if strict is not None:
        config = dataclasses.replace(config, strict=strict)
    wanted = Session.from_config(config)
    if session.active() == wanted:
        return
    disable()
    messages.set_level(wanted.log_level)
    _set_environment(wanted.state)
    _patch_mxnet(wanted.state)
    session.activate(wanted)


def disable() -> None:
    """Restore MXNet's own functions, and make every parameter whole again."""
    ended = session.active()
    if ended is None:
        return
    session.activate(None)
    state = ended.state
    state.calls.closed = True
    for one in list(state.trainers):
        trainer.merge_states(one)
    for one in list(state.tiled):
        parameter.untile(one)
    state.blocks.clear()
    while state.undo:
        state.undo.pop()()


def _config(
    workers: Optional[int],
    device: Optional[str],
    log: Optional[str],
    fetch: Optional[str],
    plan: Union[str, os.PathLike[str], None],
    search: Optional[str],
    pins: Optional[Mapping[str, Union[int, Sequence[int]]]],
) -> Config:
    environ = dict(os.environ)
    for name, value in (
        ("TOFU_DEVICE", device),
        ("TOFU_LOG", log),
        ("TOFU_FETCH", fetch),
        ("TOFU_PLAN", None if plan is None else os.fspath(plan)),
        ("TOFU_SEARCH", search),
    ):
        if value is not None:
            environ[name] = value
    if workers is not None:
        environ["TOFU_WORKERS"] = str(parse_workers(workers, "workers"))
    config = Config.from_environment(environ)
    if pins is None:
        return config
    cuts = {n: (d,) if isinstance(d, int) else tuple(d) for n, d in pins.items()}
    return dataclasses.replace(config, pins=tuple(cuts.items()))


def _set_environment(state: State) -> None:
    for name, value in MXNET_ENVIRONMENT.items():
        before = os.environ.get(name)
        os.environ[name] = value
        state.undo.append(_restorer(name, before))


def _restorer(name: str, before: Optional[str]) -> Callable[[], None]:
    def restore() -> None:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before

    return restore


def _patch_mxnet(state: State) -> None:
    seams: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (gluon.Block, "__call__", block.call),
        (gluon.HybridBlock, "_build_cache", block.build_cache),
        (gluon.HybridBlock, "_call_cached_op", block.call_cached_op),
        (gluon.Trainer, "__init__", trainer.init),
        (gluon.Trainer, "_init_kvstore", trainer.init_kvstore),
        (gluon.Trainer, "_allreduce_grads", trainer.allreduce_grads),
        (gluon.Trainer, "_update", trainer.update),
        (gluon.Trainer, "save_states", trainer.save_states),
        (gluon.Trainer, "load_states", trainer.load_states),
        (gluon.ParameterDict, "zero_grad", parameter.zero_grad),
        (mx_autograd, "grad", delivery.grad),
        # Every backward call in MXNet's Python goes through this function.
        (_LIB, "MXAutogradBackwardEx", _backward),
        *((_LIB, name, async_errors.settling) for name in async_errors.READERS),
        (_LIB, "MXGetLastError", async_errors.explaining),
    ]
    for owner, name, replacement in seams:
        original = getattr(owner, name)
        setattr(owner, name, replacement(original))
        state.undo.append(functools.partial(setattr, owner, name, original))


def _backward(original: Callable[..., int]) -> Callable[..., int]:
    def backward(*args: Any) -> int:
        current = session.active()
        if current is None:
            return original(*args)
        state = current.state

        def before() -> None:
            views.before_backward(state.views)  # copy what the script wrote into the tiles
            delivery.before_backward(state)

        def after() -> None:
            delivery.after_backward(state)
            views.after_backward(state.views)  # and the new gradients into the script's arrays

        try:
            return state.calls.run(original, args, before, after)
        except Exception as error:
            async_errors.explain(error, current)
            raise

    return backward
