"""The only module that reads tofu's environment variables.

``MXNET_GRAPH_PASS``  ``tofu`` enables tofu; unset or empty leaves MXNet unchanged.
``TOFU_WORKERS``      number of workers; unset: all GPUs, else 2.
``TOFU_DEVICE``       ``gpu`` or ``cpu``; unset: ``gpu`` if there is one, else ``cpu``.
``TOFU_FETCH``        ``multifetch`` or ``plain``; unset: ``multifetch`` on CPUs.
``TOFU_DESCRIBE``     files with descriptions of your operators, separated as in PATH.
``TOFU_LOG``          comma-separated: ``quiet``, ``info`` (default), ``debug``, ``dump:DIR``.
``TOFU_SEARCH``       the search mode, one of MODES; unset: ``tofu``.
``TOFU_REPLICATION``  ``1``: tensors may stay whole if that is cheaper; ``2%``: as long as no worker
                      holds so much more than if all are cut; unset or ``0``: not.
``TOFU_OBJECTIVE``    ``bytes`` or ``time``, what the search minimises; unset: ``bytes``.
``TOFU_MACHINE``      a machine file or name, which predicts the time of plans; unset: none.
``TOFU_MEMORY``       what a worker may hold, such as ``12GiB``; unset: what GPUs have.
``TOFU_RECOMPUTE``    ``auto``, ``none`` or ``all``: activations to compute again in the backward
                      pass; unset: ``auto``, as few as the memory needs.
``TOFU_KEEP_FETCHED`` by how much a worker's peak may grow, such as ``512MiB``, for fetched regions
                      that it keeps instead of fetching them again; ``auto``: by what TOFU_MEMORY
                      leaves; unset: by nothing.
``TOFU_PINS``         ``TENSOR=DIM[,DIM...]``, several separated by spaces, or a file of them.
``TOFU_PLAN``         a file that ``tofu plan --save`` wrote, to use instead of a search.
``TOFU_STRICT``       ``1``: what would run serially is an error; unset or ``0``: a warning.
``TOFU_TIMEOUT``      for how many seconds a process waits for others; unset: 600; ``0``: no limit.
``TOFU_HYBRIDIZE``    ``0``: only blocks that the script hybridizes; unset or ``1``: all.
``TOFU_CACHE``        ``0``: plans are searched again, not taken from the user's cache folder.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Optional

from .errors import ConfigError

__all__ = [
    "Config",
    "DEVICES",
    "ESTIMATE",
    "EXACT",
    "FETCHES",
    "LOG_LEVELS",
    "MAX_WORKERS",
    "AUTO",
    "MODES",
    "OBJECTIVES",
    "RECOMPUTES",
    "MXNET_ENVIRONMENT",
    "TIMEOUT_S",
    "VARIABLES",
    "cache_directory",
    "caches",
    "graph_pass",
    "parse_bytes",
    "parse_mode",
    "parse_pins",
    "parse_recompute",
    "parse_share",
    "parse_workers",
    "pins_of",
    "private_directory",
    "read_pins",
]

DEVICES = ("gpu", "cpu")
FETCHES = ("multifetch", "plain")
LOG_LEVELS = ("quiet", "info", "debug")
# Search modes: tofu's own, the paper's, and those that the paper compares with (section 7.3).
MODES = (
    "tofu",
    "recursion",
    "flat",
    "allrow-greedy",
    "spartan",
    "equalchop",
    "icml18",
    "soybean",
    "data-parallel",
    "zero-1",
    "zero-2",
    "zero-3",
    "mesh-tensorflow",
)
AUTO = "auto"  # keeps as many fetched regions as the memory limit allows
EXACT, ESTIMATE = "exact", "estimate"  # ways to count the bytes that a worker holds
OBJECTIVES = ("bytes", "time")  # quantities that a search can minimise
# Which activations are computed again: as few as a memory limit needs, none, or all that help.
RECOMPUTES = ("auto", "none", "all")
# MXNet's settings for binding partitioned graphs. Its common-subexpression elimination merges
# equal nodes even of different workers, and loses control dependencies on them.
MXNET_ENVIRONMENT = {"MXNET_ELIMINATE_COMMON_EXPR": "0"}
VARIABLES = (
    "TOFU_WORKERS",
    "TOFU_DEVICE",
    "TOFU_FETCH",
    "TOFU_DESCRIBE",
    "TOFU_LOG",
    "TOFU_SEARCH",
    "TOFU_REPLICATION",
    "TOFU_OBJECTIVE",
    "TOFU_MACHINE",
    "TOFU_MEMORY",
    "TOFU_RECOMPUTE",
    "TOFU_KEEP_FETCHED",
    "TOFU_PINS",
    "TOFU_PLAN",
    "TOFU_STRICT",
    "TOFU_TIMEOUT",
    "TOFU_HYBRIDIZE",
    "TOFU_CACHE",
)
Pin = tuple[str, tuple[int, ...]]
TIMEOUT_S = 600.0
MAX_WORKERS = 16_384  # of the passes, too: kMaxWorkers in src/graph/plan.h
_UNITS = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(rf"(\d+(?:\.\d*)?)\s*({'|'.join(_UNITS)})", re.IGNORECASE)
_PERCENTAGE = re.compile(r"(\d+(?:\.\d*)?)\s*%")
_SPELLING = 0.8  # how similar two names must be for one to be a misspelling


@dataclasses.dataclass(frozen=True)
class Config:
    """The settings of a run.

    Attributes:
        workers: number of workers, or None for all GPUs, else 2.
        device: "gpu", "cpu", or None for whichever exists.
        fetch: how workers read each other's tiles, one of FETCHES, or None for the default:
            multifetch on CPUs, plain on GPUs.
        log_level: one of LOG_LEVELS.
        dump_dir: directory for a readable dump after every pass, or None.
        search: one of MODES.
        replication: whether large tensors may stay whole if that is cheaper.
        whole_share: the part of the memory of a plan that cuts every tensor by which a worker may
            hold more for tensors that stay whole; None: any.
        objective: what the search minimises, one of OBJECTIVES.
        machine: a machine file, or the name of a machine that tofu ships; "" for none.
        memory_bytes: what a worker may hold, or None; with it, and without TOFU_REPLICATION=0,
            tensors may stay whole, as the limit says how much memory that may take.
        recompute: which activations the backward pass computes again, one of RECOMPUTES.
        keep_fetched_bytes: by how much a worker's peak may grow for fetched regions that it keeps;
            None: by what memory_bytes leaves.
        pins: variables and the dimensions that the steps cut them along.
        plan: the file of a saved plan, or None.
        describe: files with descriptions of the user's operators.
        strict: whether a block that would run serially is an error.
        timeout_s: for how long a process waits for others, in seconds; 0: without limit.
        hybridize: whether blocks that the script never hybridizes are partitioned, too.
    """

    workers: Optional[int] = None
    device: Optional[str] = None
    fetch: Optional[str] = None
    log_level: str = "info"
    dump_dir: Optional[Path] = None
    search: str = MODES[0]
    replication: bool = False
    whole_share: Optional[float] = None
    objective: str = OBJECTIVES[0]
    machine: str = ""
    memory_bytes: Optional[int] = None
    recompute: str = RECOMPUTES[0]
    keep_fetched_bytes: Optional[int] = 0
    pins: tuple[Pin, ...] = ()
    plan: Optional[Path] = None
    describe: tuple[Path, ...] = ()
    strict: bool = False
    timeout_s: float = TIMEOUT_S
    hybridize: bool = True

    @classmethod
    def from_environment(
        cls,
        environ: Optional[Mapping[str, str]] = None,
        *,
        called: Optional[Mapping[str, str]] = None,
    ) -> Config:
        """Read the TOFU_* variables. Raises ConfigError for a value out of range.

        Args:
            environ: the environment; None: the process's.
            called: the name in errors of a variable whose value comes from elsewhere.
        """
        env = os.environ if environ is None else environ
        _check_names(env)
        where = {name: (called or {}).get(name, name) for name in VARIABLES}
        workers = env.get("TOFU_WORKERS", "").strip()
        device = env.get("TOFU_DEVICE", "").strip().lower()
        if device and device not in DEVICES:
            raise ConfigError(
                f"{where['TOFU_DEVICE']}={env['TOFU_DEVICE']!r}: expected 'gpu' or 'cpu'; "
                "unset it to use GPUs if there are any, else the CPU"
            )
        fetch = env.get("TOFU_FETCH", "").strip().lower()
        if fetch and fetch not in FETCHES:
            raise ConfigError(
                f"{where['TOFU_FETCH']}={env['TOFU_FETCH']!r}: expected 'multifetch' or 'plain'; "
                "unset it to use multifetch on CPUs and plain on GPUs"
            )
        level, dump_dir = _parse_log(env.get("TOFU_LOG", ""), where["TOFU_LOG"])
        mode, plan = env.get("TOFU_SEARCH", "").strip(), env.get("TOFU_PLAN", "").strip()
        if mode and plan:
            advice = "leave one of them out" if called else "unset one of them"
            raise ConfigError(
                f"{where['TOFU_SEARCH']}={mode}: {where['TOFU_PLAN']}={plan} is used instead of a "
                f"search; {advice}"
            )
        objective = _parse_objective(env.get("TOFU_OBJECTIVE", ""), where["TOFU_OBJECTIVE"])
        machine = env.get("TOFU_MACHINE", "").strip()
        if objective == "time" and not machine:
            raise ConfigError(
                f"{where['TOFU_OBJECTIVE']}=time: expected {where['TOFU_MACHINE']} as well, a "
                "machine file (tofu calibrate writes one) or name, to predict times"
            )
        memory = env.get("TOFU_MEMORY", "").strip()
        keep_fetched = env.get("TOFU_KEEP_FETCHED", "").strip()
        whole = env.get("TOFU_REPLICATION", "").strip()
        share = parse_share(whole, "TOFU_REPLICATION") if whole.endswith("%") else None
        return cls(
            workers=parse_workers(workers, where["TOFU_WORKERS"]) if workers else None,
            device=device or None,
            fetch=fetch or None,
            log_level=level,
            dump_dir=dump_dir,
            search=parse_mode(mode, where["TOFU_SEARCH"]) if mode else MODES[0],
            replication=share is not None
            or _parse_switch(whole, "TOFU_REPLICATION", unset=bool(memory), other=", or 2%"),
            whole_share=share,
            objective=objective,
            machine=machine,
            memory_bytes=parse_bytes(memory, where["TOFU_MEMORY"]) if memory else None,
            recompute=parse_recompute(env.get("TOFU_RECOMPUTE", ""), where["TOFU_RECOMPUTE"]),
            keep_fetched_bytes=_parse_kept(keep_fetched, memory, where) if keep_fetched else 0,
            pins=_parse_pins_variable(env.get("TOFU_PINS", "")),
            plan=Path(plan) if plan else None,
            describe=_parse_describe(env.get("TOFU_DESCRIBE", "")),
            strict=_parse_switch(env.get("TOFU_STRICT", ""), "TOFU_STRICT"),
            timeout_s=_parse_seconds(env.get("TOFU_TIMEOUT", ""), "TOFU_TIMEOUT"),
            hybridize=_parse_switch(env.get("TOFU_HYBRIDIZE", ""), "TOFU_HYBRIDIZE", unset=True),
        )

    @classmethod
    def from_arguments(
        cls,
        function: str,
        texts: Mapping[str, object],
        pins: object,
        switches: Mapping[str, object],
        *,
        without: Iterable[str] = (),
    ) -> Config:
        """The arguments of a function, and the environment for those that are None.

        Args:
            function: its name, for errors.
            texts: arguments whose values are those of the variables of these names.
            pins: tensors to their cuts, or None.
            switches: attributes that are True, False, or None; replication may be a percentage.
            without: variables to ignore.

        Raises:
            ConfigError: a value has another type, or is out of range.
        """
        environ, called = dict(os.environ), {}
        for variable in without:
            environ.pop(variable, None)
        for name, value in texts.items():
            if value is None:
                continue
            variable = f"TOFU_{name.upper()}"
            environ[variable] = _argument_text(function, name, value)
            called[variable] = f"{function}: {name}"
        config = cls.from_environment(environ, called=called)
        if pins is not None:
            config = dataclasses.replace(config, pins=pins_of(pins, f"{function}: pins"))
        for name, switch in switches.items():
            if switch is None:
                continue
            if name == "replication":
                share = None
                if isinstance(switch, str):
                    share = parse_share(switch, f"{function}: allow_replication")
                    switch = True
                config = dataclasses.replace(config, whole_share=share)
            if type(switch).__name__ not in ("bool", "bool_"):  # Python's, or NumPy's
                argument = "allow_replication" if name == "replication" else name
                raise ConfigError(f"{function}: {argument}={switch!r}: expected True or False")
            changes: dict[str, Any] = {name: bool(switch)}
            config = dataclasses.replace(config, **changes)
        return config


def _argument_text(function: str, name: str, value: object) -> str:
    """An argument as the environment has it. Raises ConfigError for one of another type."""
    if name == "workers":
        return str(parse_workers(value, f"{function}: workers"))
    is_path = isinstance(value, os.PathLike) and name in ("plan", "machine")
    text = os.fspath(value) if is_path else value  # type: ignore[call-overload]
    if not isinstance(text, str):
        kind = "the path of a plan file" if name == "plan" else "a text"
        raise ConfigError(f"{function}: {name}={value!r}: expected {kind}")
    return text


def _parse_kept(text: str, memory: str, where: Mapping[str, str]) -> Optional[int]:
    """A size, or None for "auto", which needs a limit."""
    if text.lower() != AUTO:
        return parse_bytes(text, where["TOFU_KEEP_FETCHED"])
    if memory:
        return None
    raise ConfigError(
        f"{where['TOFU_KEEP_FETCHED']}={text}: expected {where['TOFU_MEMORY']} as well, which says "
        "what a worker may hold; set it, or give a size such as 512MiB"
    )


def _parse_objective(text: str, where: str) -> str:
    word = text.strip().lower() or OBJECTIVES[0]
    if word not in OBJECTIVES:
        raise ConfigError(
            f"{where}={text!r}: expected {' or '.join(map(repr, OBJECTIVES))}; "
            f"unset it to minimise {OBJECTIVES[0]}"
        )
    return word


def _check_names(names: Iterable[str]) -> None:
    """Raise ConfigError for a variable that is nearly, but not quite, one of tofu's."""
    for name in names:
        spelt = name.upper().replace("-", "_")
        if name in VARIABLES or not spelt.startswith("TOFU"):
            continue
        near = difflib.get_close_matches(spelt, VARIABLES, n=1, cutoff=_SPELLING)
        if near:
            raise ConfigError(f"{name}: tofu has no such variable; did you mean {near[0]}?")


def caches() -> bool:
    """Whether plans are kept for the next run. Raises ConfigError unless TOFU_CACHE is 1 or 0."""
    return _parse_switch(os.environ.get("TOFU_CACHE", ""), "TOFU_CACHE", unset=True)


def cache_directory() -> Path:
    """The folder for tofu's files in the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tofu"


def private_directory(name: str) -> Optional[Path]:
    """A folder in the cache directory that only the user can write to; None if there is none.

    What it contains is run, so a folder that others own or can write to is not used.
    """
    path = cache_directory() / name
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (path, path.parent):
            status = folder.lstat()
            if (
                not stat.S_ISDIR(status.st_mode)
                or status.st_uid != os.geteuid()
                or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            ):
                return None
    except OSError:
        return None
    return path


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


def _parse_switch(value: str, where: str, *, unset: bool = False, other: str = "") -> bool:
    """Whether an option is on. Raises ConfigError unless it is 1 or 0; `other` is also allowed."""
    value = value.strip()
    if value not in ("", "0", "1"):
        on, off = (", as when it is unset", "") if unset else ("", ", as when it is unset")
        raise ConfigError(f"{where}={value!r}: expected 1 (on{on}) or 0 (off{off}){other}")
    return value == "1" if value else unset


def _parse_seconds(value: str, where: str) -> float:
    """A number of seconds; TIMEOUT_S by default."""
    if not value.strip():
        return TIMEOUT_S
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"{where}={value}: expected a number of seconds, or 0 to wait forever")
    return seconds


def parse_workers(value: object, where: str) -> int:
    """A worker count of 1 to MAX_WORKERS from text or a number; `where` names its source."""
    try:
        workers = int(str(value))
    except ValueError:
        workers = 0
    if not 1 <= workers <= MAX_WORKERS:
        raise ConfigError(
            f"{where}={value}: expected a whole number of workers, "
            f"1 to {MAX_WORKERS:,}; one GPU or CPU context is one worker"
        )
    return workers


def parse_share(text: str, where: str) -> float:
    """A percentage such as "2%", as a part of one; `where` names its source."""
    match = _PERCENTAGE.fullmatch(text.strip())
    if not match:
        raise ConfigError(f"{where}={text}: expected a percentage such as 2%")
    return float(match[1]) / 100


def parse_bytes(text: str, where: str) -> int:
    """A size such as "12GiB", "800 MB" or "1000000B" in bytes; `where` names its source."""
    match = _SIZE.fullmatch(text.strip())
    size = float(match[1]) * _UNITS[match[2].lower()] if match else 0.0
    if not 1 <= size <= sys.maxsize:
        raise ConfigError(f"{where}={text}: expected a size with its unit, such as 12GiB or 800MiB")
    return int(size)


def parse_mode(text: str, where: str) -> str:
    """A search mode; `where` names its source. Raises ConfigError for another word."""
    mode = text.lower()
    if mode not in MODES:
        near = difflib.get_close_matches(mode, MODES, n=1)
        raise ConfigError(
            f"{where}={text}: no such search mode; expected one of {', '.join(MODES)}"
            + (f" (did you mean {near[0]}?)" if near else "")
        )
    return mode


def parse_recompute(text: str, where: str) -> str:
    """One of RECOMPUTES; `where` names its source. Raises ConfigError for another word."""
    word = text.strip().lower() or RECOMPUTES[0]
    if word not in RECOMPUTES:
        raise ConfigError(f"{where}={text}: expected one of {', '.join(RECOMPUTES)}")
    return word


def parse_pins(texts: Iterable[str], where: str, earlier: Iterable[Pin] = ()) -> tuple[Pin, ...]:
    """Pins from texts ``TENSOR=DIM[,DIM...]``, after the `earlier` ones.

    Raises ConfigError for a text that is not a pin, and for two pins that disagree; `where`
    names the texts' source.
    """
    pins = dict(earlier)
    for text in texts:
        name, _, dimensions = text.rpartition("=")
        try:
            cuts = tuple(int(cut) for cut in dimensions.split(","))
        except ValueError:
            cuts = ()
        if not name.strip() or "=" in name or not cuts or min(cuts) < -1:
            raise ConfigError(
                f"{where} {text}: expected TENSOR=DIM or TENSOR=DIM,DIM,..., such as "
                "fc1_weight=0: one dimension for all steps, or one per step (-1: none)"
            )
        name = name.strip()
        if pins.setdefault(name, cuts) != cuts:
            before = ",".join(map(str, pins[name]))
            raise ConfigError(f"{where} {text}: already pinned as {name}={before}; keep one")
    return tuple(pins.items())


def pins_of(pins: object, where: str) -> tuple[Pin, ...]:
    """Pins from a mapping of tensors to one dimension, or one per step.

    Raises ConfigError for anything else; `where` names its source.
    """
    expected = 'expected a dict such as {"fc1_weight": 0}: a dimension, or one per step'
    if not isinstance(pins, Mapping):
        raise ConfigError(f"{where}={pins!r}: {expected}")
    read = []
    for name, cuts in pins.items():
        steps = tuple(cuts) if isinstance(cuts, (list, tuple)) else (cuts,)
        numbers = all(hasattr(cut, "__index__") and not isinstance(cut, bool) for cut in steps)
        if not isinstance(name, str) or not steps or not numbers or min(steps) < -1:
            raise ConfigError(f"{where}={{{name!r}: {cuts!r}}}: {expected} (-1: none)")
        read.append((name, tuple(cut.__index__() for cut in steps)))
    return tuple(read)


def read_pins(path: Path, where: str) -> tuple[Pin, ...]:
    """The pins of a file: one on each line, comments after "#". Raises ConfigError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ConfigError(
            f"{where} {path}: cannot be read ({what}); expected a file with one "
            "TENSOR=DIM[,DIM...] per line"
        ) from None
    pins: list[Pin] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            pins = list(parse_pins([text], f"{where} {path}, line {number}:", pins))
    return tuple(pins)


def _parse_pins_variable(text: str) -> tuple[Pin, ...]:
    if text.strip() and "=" not in text:
        return read_pins(Path(text.strip()), "TOFU_PINS")
    return parse_pins(text.split(), "TOFU_PINS:")


def _parse_describe(text: str) -> tuple[Path, ...]:
    paths = tuple(Path(part) for part in text.split(os.pathsep) if part)
    for path in paths:
        if not os.path.isfile(path):
            raise ConfigError(
                f"TOFU_DESCRIBE={text!r}: {path} is not a file; expected Python files with "
                f"descriptions, separated by {os.pathsep!r}"
            )
    return paths


def _writable(directory: Path, setting: str) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{setting}: cannot make the directory {directory} ({error.strerror}); "
            "expected one that can be written to"
        ) from None
    if not os.access(directory, os.W_OK):
        raise ConfigError(f"{setting}: {directory} cannot be written to; choose another directory")
    return directory


def _parse_log(text: str, where: str) -> tuple[str, Optional[Path]]:
    level, dump_dir = "info", None
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word in LOG_LEVELS:
            level = word
        elif word.startswith("dump:") and len(word) > len("dump:"):
            dump_dir = _writable(Path(word[len("dump:") :]), f"{where}={text!r}")
        else:
            raise ConfigError(
                f"{where}={text!r}: {word!r} is unknown; expected a comma-separated "
                f"list of {', '.join(LOG_LEVELS)} and dump:DIR"
            )
    return level, dump_dir
