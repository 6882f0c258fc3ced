"""What ``enable`` has set: the workers' contexts and how much to say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Optional

from tofu.config import Config
from tofu.errors import ConfigError

__all__ = ["Session", "active", "activate", "describe_contexts"]

CPU_WORKERS = 2


@dataclasses.dataclass(frozen=True)
class Session:
    """The settings of one ``enable``.

    Attributes:
        contexts: one MXNet context per worker.
        log_level: one of config.LOG_LEVELS.
        dump_dir: directory for a readable dump after every pass, or None.
    """

    contexts: tuple[Any, ...]
    log_level: str = "info"
    dump_dir: Optional[Path] = None

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self.contexts)

    @classmethod
    def from_config(cls, config: Config) -> Session:
        """Choose contexts: all GPUs if there are some, else two CPU contexts.

        Raises:
            ConfigError: more GPUs are asked for than there are.
        """
        import mxnet as mx

        gpus = 0 if config.device == "cpu" else mx.context.num_gpus()
        device = config.device or ("gpu" if gpus else "cpu")
        if device == "cpu":
            make, workers = mx.cpu, config.workers or CPU_WORKERS
        else:
            make, workers = mx.gpu, config.workers or gpus
            _check_gpus(workers, gpus)
        return cls(tuple(make(i) for i in range(workers)), config.log_level, config.dump_dir)


_active: Optional[Session] = None


def active() -> Optional[Session]:
    """The session in force, or None while tofu is off."""
    return _active


def activate(session: Optional[Session]) -> None:
    """Put a session in force; None ends it."""
    global _active
    _active = session


def describe_contexts(contexts: tuple[Any, ...]) -> str:
    """Contexts in short.

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
            "TOFU_DEVICE=gpu: MXNet sees 0 GPUs here; install the extra [cu112] on a machine "
            "with a CUDA driver, or use TOFU_DEVICE=cpu"
        )
    if workers > gpus:
        raise ConfigError(
            f"TOFU_WORKERS={workers}: one worker is one GPU, and there are only {gpus}; "
            f"use at most {gpus}, or TOFU_DEVICE=cpu for CPU workers"
        )
