"""The devices of a run: the number and kind of its workers, and their kind of fetches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import mxnet as mx

from tofu.config import Config

__all__ = ["GraphUse", "default_fetch", "number_of_gpus", "number_of_workers", "uses_gpus"]

_CPU_WORKERS = 2


@dataclasses.dataclass(frozen=True)
class GraphUse:
    """The run that a training graph is made for.

    Attributes:
        train: whether Dropout drops values and BatchNorm uses the batch's statistics.
        workers: the number of workers; composite operators that they cannot share are taken
            apart.
        on_gpus: whether they are GPUs. There BatchNorm has other parts, and updates its running
            statistics whenever it uses the batch's, as in cuDNN. On CPUs it does so only if a
            gradient flows through it, as MXNet's backward operator does the update there.
    """

    train: bool
    workers: int = 1
    on_gpus: bool = False


def number_of_gpus(config: Config) -> int:
    """The number of GPUs that workers may use."""
    return 0 if config.device == "cpu" else int(mx.context.num_gpus())


def number_of_workers(config: Config, saved: Sequence[int] = ()) -> int:
    """The number of workers of a run.

    Args:
        config: the user's settings.
        saved: the numbers of workers that the saved plans are for.

    Returns:
        The number set by the user, else that of the saved plans if it is one, else that of the
        GPUs, else two.
    """
    if config.workers is not None:
        return config.workers
    if len(saved) == 1:
        return saved[0]
    return number_of_gpus(config) or _CPU_WORKERS


def uses_gpus(config: Config) -> bool:
    """Whether workers are GPUs: as the user has set, else if there are any."""
    return config.device == "gpu" if config.device else number_of_gpus(config) > 0


def default_fetch() -> str:
    """The default kind of fetch: MultiFetch on CPUs, MXNet's copies on GPUs."""
    return "plain" if uses_gpus(Config.from_environment()) else "multifetch"
