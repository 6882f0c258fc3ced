"""The session from ``enable`` to ``disable``: its settings, and the state it owns."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any, Callable, Optional

from tofu import cuda_libraries
from tofu.config import TIMEOUT_S, Config
from tofu.errors import ConfigError, InternalError
from tofu.mx.devices import number_of_gpus, number_of_workers, uses_gpus
from tofu.planner.compile_plan import Compiled
from tofu.planner.wish import Wish
from tofu.plans import Problem
from tofu.plans import file as plan_file
from tofu.plans.file import PlanFile

from .state import State

__all__ = ["Session", "active", "activate", "describe_contexts", "looking"]


@dataclasses.dataclass(frozen=True)
class Session:
    """The settings of one ``enable``, and the state until the next ``disable``.

    Two sessions with the same settings are equal.

    Attributes:
        contexts: one MXNet context per worker.
        log_level: one of config.LOG_LEVELS.
        wish: how to plan; without a limit, workers may fill their GPUs, and CPUs have no limit.
        plans: saved plans to use instead of a search, or None.
        strict: whether a block that would run serially is an error.
        timeout_s: for how long a process waits for others, in seconds; 0: without limit.
        hybridize: whether blocks that were never hybridized are traced and partitioned, too.
        state: everything that changes during the session.
    """

    contexts: tuple[Any, ...]
    log_level: str = "info"
    wish: Wish = dataclasses.field(default_factory=Wish)
    plans: Optional[PlanFile] = None
    strict: bool = False
    timeout_s: float = TIMEOUT_S
    hybridize: bool = True
    state: State = dataclasses.field(default_factory=State, compare=False, repr=False)

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.contexts)

    @classmethod
    def from_config(cls, config: Config) -> Session:
        """Make a session, by default on all GPUs, or on two CPU contexts without any.

        Raises:
            ConfigError: the configuration asks for more GPUs than there are.
        """
        import mxnet as mx

        gpus = number_of_gpus(config)
        plans = plan_file.read(config.plan) if config.plan else None
        workers = number_of_workers(config, plans.workers if plans is not None else ())
        context = mx.cpu
        if uses_gpus(config):
            context = mx.gpu
            _check_gpus(workers, gpus)
            cuda_libraries.check_gpus(range(workers))
        if plans is not None:
            plans.check_workers(workers)
        return cls(
            contexts=tuple(context(i) for i in range(workers)),
            log_level=config.log_level,
            wish=Wish.of(config),
            plans=plans,
            strict=config.strict,
            timeout_s=config.timeout_s,
            hybridize=config.hybridize,
        )


# A variable of the process, as MXNet's functions are (and cluster's connection).
_active: Optional[Session] = None


def active() -> Optional[Session]:
    """The active session, or None while tofu is off."""
    return _active


def activate(session: Optional[Session]) -> None:
    """Make a session the active one, or end it with None."""
    global _active
    _active = session


def looking(
    *,
    problem: Callable[[Problem], None] = lambda _: None,
    compiled: Callable[[Compiled], None] = lambda _: None,
) -> AbstractContextManager[None]:
    """Look into the active session, as ``Lookers.looking`` says."""
    if _active is None:
        raise InternalError("nothing to look into: tofu is off; expected a session")
    return _active.state.lookers.looking(problem=problem, compiled=compiled)


def describe_contexts(contexts: tuple[Any, ...]) -> str:
    """Abbreviate contexts.

    >>> import mxnet as mx
    >>> describe_contexts((mx.cpu(0), mx.cpu(1), mx.cpu(2)))
    'cpu(0-2)'
    """
    kind, ids = contexts[0].device_type, [context.device_id for context in contexts]
    if len(ids) > 1 and ids == list(range(ids[0], ids[0] + len(ids))):
        return f"{kind}({ids[0]}-{ids[-1]})"
    return ", ".join(map(str, contexts))


def _check_gpus(workers: int, gpus: int) -> None:
    if not gpus:
        raise ConfigError(
            "TOFU_DEVICE=gpu: MXNet sees 0 GPUs here; install the extra [mxnet-cu112] on a machine "
            "with a CUDA driver, or use TOFU_DEVICE=cpu"
        )
    if workers > gpus:
        raise ConfigError(
            f"TOFU_WORKERS={workers}: one worker is one GPU, and there are only {gpus}; "
            f"use at most {gpus}, or TOFU_DEVICE=cpu for CPU workers"
        )
