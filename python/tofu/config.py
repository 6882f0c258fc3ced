"""The one place that reads tofu's environment variables.

``MXNET_GRAPH_PASS``  ``tofu`` switches tofu on; unset or empty leaves MXNet as it is.
``TOFU_WORKERS``      number of workers; unset: all GPUs, else 2.
``TOFU_DEVICE``       ``gpu`` or ``cpu``; unset: ``gpu`` where there is one, else ``cpu``.
``TOFU_LOG``          comma-separated: ``quiet``, ``info`` (default), ``debug``, ``dump:DIR``.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from .errors import ConfigError

__all__ = ["Config", "DEVICES", "LOG_LEVELS", "graph_pass", "parse_workers"]

DEVICES = ("gpu", "cpu")
LOG_LEVELS = ("quiet", "info", "debug")
_MAX_WORKERS = 1024


@dataclasses.dataclass(frozen=True)
class Config:
    """What steers a run.

    Attributes:
        workers: number of workers, or None for all GPUs, else 2.
        device: "gpu", "cpu", or None for whatever there is.
        log_level: one of LOG_LEVELS.
        dump_dir: directory for a readable dump after every pass, or None.
    """

    workers: Optional[int] = None
    device: Optional[str] = None
    log_level: str = "info"
    dump_dir: Optional[Path] = None

    @classmethod
    def from_environment(cls, environ: Optional[Mapping[str, str]] = None) -> Config:
        """Read the TOFU_* variables. Raises ConfigError for a value out of range."""
        env = os.environ if environ is None else environ
        workers = env.get("TOFU_WORKERS", "").strip()
        device = env.get("TOFU_DEVICE", "").strip().lower()
        if device and device not in DEVICES:
            raise ConfigError(
                f"TOFU_DEVICE={env['TOFU_DEVICE']!r}: expected 'gpu' or 'cpu'; "
                "unset it to use GPUs where there are some, else the CPU"
            )
        level, dump_dir = _parse_log(env.get("TOFU_LOG", ""))
        return cls(
            workers=parse_workers(workers, "TOFU_WORKERS") if workers else None,
            device=device or None,
            log_level=level,
            dump_dir=dump_dir,
        )


def graph_pass(environ: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """The value of MXNET_GRAPH_PASS: "tofu", or None when it is unset.

    Raises ConfigError for another value.
    """
    value = (os.environ if environ is None else environ).get("MXNET_GRAPH_PASS", "")
    if not value.strip():
        return None
    if value.strip() != "tofu":
        raise ConfigError(
            f"MXNET_GRAPH_PASS={value!r}: no such graph pass; expected 'tofu', "
            "or leave the variable unset to run MXNet unchanged"
        )
    return "tofu"


def parse_workers(value: object, where: str) -> int:
    """A worker count of 1 to 1024 from text or a number; `where` names its source."""
    try:
        workers = int(str(value))
    except ValueError:
        workers = 0
    if not 1 <= workers <= _MAX_WORKERS:
        raise ConfigError(
            f"{where}={value}: expected a whole number of workers, "
            f"1 to {_MAX_WORKERS}; one GPU or CPU context is one worker"
        )
    return workers


def _writable(directory: Path, text: str) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"TOFU_LOG={text!r}: cannot make the directory {directory} ({error.strerror}); "
            "expected one that can be written to"
        ) from None
    if not os.access(directory, os.W_OK):
        raise ConfigError(
            f"TOFU_LOG={text!r}: {directory} cannot be written to; choose another directory"
        )
    return directory


def _parse_log(text: str) -> tuple[str, Optional[Path]]:
    level, dump_dir = "info", None
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word in LOG_LEVELS:
            level = word
        elif word.startswith("dump:") and len(word) > len("dump:"):
            dump_dir = _writable(Path(word[len("dump:") :]), text)
        else:
            raise ConfigError(
                f"TOFU_LOG={text!r}: {word!r} is not known; expected a comma-separated "
                f"list of {', '.join(LOG_LEVELS)} and dump:DIR"
            )
    return level, dump_dir
