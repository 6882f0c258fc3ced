"""Judges whether a partitioned run computed the same as the serial one.

In float64 every array agrees to 1e-9 of its scale: its own largest value, or a thousandth of
the largest of its kind (gradients, outputs, ...), as a gradient that is 0 in truth is noise.

In float32 both runs are compared with the serial run in float64. The error of the partitioned run
may be a few times that of the serial one, plus a few roundings of the array's scale.

Where an error is larger, the serial run is repeated with inputs and weights that differ by one
rounding, and the largest of its errors counts: some nets amplify, and a value next to a kink of
ReLU, or two equal maxima, make some jump.

An optimizer that divides by a gradient's size turns noise into full steps. Its runs start each step
with the parameters that SGD would have reached, and its updates are compared with those that a
plain Trainer makes of the same gradients.
"""

from __future__ import annotations

import dataclasses
import time
import traceback
import warnings
from typing import Any, Callable

import numpy as np

import tofu
from tofu.gluon.session.session import looking

from ..moved_bytes import wrong_bytes
from . import train as script
from .draw import SMOOTH
from .spec import Spec
from .train import Arrays, Result

EXACT = 1e-9
SERIAL_ERRORS = 16
ROUNDINGS = 64
PROBES = 6
# Shares of the largest value of a kind, below which an array counts as noise.
FLOOR, FLOOR_IN_FLOAT32 = 1e-3, 0.1
REPLAY = {"float32": 1e-5, "float64": 1e-12}
# MXNet sums the squares of a tensor in single precision, also for float64; the workers do not.
NORMS = ("lamb", "lars", "lbsgd")
REPLAY_NORMS = 1e-6
NOISY = ("sgld",)  # adds noise of its own to every update


class PlainError(Exception):
    """MXNet itself cannot run the net: the generator should not have made it."""


class UnequalError(AssertionError):
    """The partitioned run computed something else."""


def compare(spec: Spec, ran_serially: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Train serially and partitioned, and compare.

    Args:
        spec: the net and its script.
        ran_serially: called between the two.

    Returns:
        what is of interest for a report: operators, warnings, the largest error.

    Raises:
        UnequalError: some array differs.
        PlainError: the serial run raises.
    """
    traced = spec.optimizer[0] not in SMOOTH
    smooth = dataclasses.replace(spec, optimizer=("sgd", {"learning_rate": 0.05}))
    try:
        exact = script.train(smooth if traced else spec, "float64", traced=traced)
        options = {"traced": traced, "forced": exact.before if traced else None}
        serial = script.train(spec, spec.dtype, **options)
    except Exception as error:
        raise PlainError(f"{type(error).__name__}: {error}") from error
    if any(
        np.isnan(serial.values[name]).any() > np.isnan(v).any() for name, v in exact.values.items()
    ):
        raise PlainError("training overflows single precision")
    ran_serially()
    compiled: list[Any] = []
    tofu.enable(workers=spec.workers, device="cpu", fetch=spec.fetch, strict=True, log="quiet")
    try:
        with warnings.catch_warnings(record=True) as seen, looking(compiled=compiled.append):
            warnings.simplefilter("always")
            found = script.train(spec, spec.dtype, **options)
    finally:
        tofu.disable()
    if not compiled:
        raise UnequalError("nothing was partitioned")
    for each in compiled:
        if wrong := wrong_bytes(each):
            raise UnequalError(wrong)
    check = check_exact if spec.dtype == "float64" else check_rounded
    serially = [serial.values]
    try:
        error = check(found.values, serially, exact.values)
    except UnequalError:
        for noise in range(1, PROBES):
            again = script.train(spec, spec.dtype, noise=noise, **options)
            serially.append(again.values)
        error = check(found.values, serially, exact.values)
    if traced and spec.optimizer[0] not in NOISY:
        check_updates(spec, found)
    texts = {str(w.message).partition("\n")[0] for w in seen if "tofu" in str(w.message)}
    return {"error": error, "warnings": sorted(texts), "programs": len(compiled)}


def check_exact(found: Arrays, serial: list[Arrays], expected: Arrays) -> float:
    """The largest error as a share of the allowed one. Raises UnequalError if it is above 1."""
    return _check(found, serial, expected, floor=FLOOR, share=EXACT, measure="1e-9")


def check_rounded(found: Arrays, serial: list[Arrays], expected: Arrays) -> float:
    """The largest error as a share of the allowed one. Raises UnequalError if it is above 1."""
    share = float(ROUNDINGS * np.finfo(np.float32).eps)
    measure = "the error of the serial run"
    return _check(found, serial, expected, floor=FLOOR_IN_FLOAT32, share=share, measure=measure)


def _check(
    found: Arrays,
    serial: list[Arrays],
    expected: Arrays,
    *,
    floor: float,
    share: float,
    measure: str,
) -> float:
    errors = {}
    for name, value, scale in _scaled(found, expected, floor):
        serially = max(_distance(run[name], value) for run in serial)
        errors[name] = _distance(found[name], value) / (SERIAL_ERRORS * serially + share * scale)
    _raise_worst({name: error for name, error in errors.items() if not error <= 1}, measure)
    return max(errors.values(), default=0.0)


def check_updates(spec: Spec, found: Result) -> None:
    """Raise UnequalError unless a plain Trainer makes the same updates of the same gradients."""
    wrong = {}
    share = REPLAY[spec.dtype]
    if spec.optimizer[0] in NORMS:
        share = max(share, REPLAY_NORMS)
    for step, expected in enumerate(script.replay(spec, found, spec.dtype)):
        for name, value in expected.items():
            distance = _distance(found.after[step][name], value)
            scale = _largest(value) + 1e-3
            if not distance <= share * scale:
                wrong[f"update {step} of {name}"] = distance / scale
    _raise_worst(wrong, f"that of {spec.optimizer[0]} without tofu")


def _scaled(found: Arrays, expected: Arrays, floor: float) -> list[tuple[str, Any, float]]:
    if found.keys() != expected.keys():
        raise UnequalError(f"other values: {sorted(found.keys() ^ expected.keys())}")
    kinds: dict[str, float] = {}
    for name, value in expected.items():
        if found[name].shape != value.shape:
            raise UnequalError(f"{name}: shape {found[name].shape}, expected {value.shape}")
        kinds[_kind(name)] = max(kinds.get(_kind(name), 0.0), _largest(value))
    return [
        (name, value, max(_largest(value), floor * kinds[_kind(name)], 1e-30))
        for name, value in expected.items()
    ]


def _kind(name: str) -> str:
    return next(kind for kind in ("gradient", "parameter", "output", "prediction") if kind in name)


def _largest(value: Any) -> float:
    return float(np.abs(value[np.isfinite(value)]).max(initial=0))


def _distance(found: Any, expected: Any) -> float:
    """The largest difference; nan and inf equal themselves."""
    equal = (found == expected) | (np.isnan(found) & np.isnan(expected))
    if equal.all():
        return 0.0
    distances = np.abs(np.where(equal, 0, found - expected))
    return float("inf") if np.isnan(distances).any() else float(distances.max(initial=0))


def _raise_worst(wrong: dict[str, float], measure: str) -> None:
    if wrong:
        worst = sorted(wrong.items(), key=lambda item: -item[1])[:6]
        shown = ", ".join(f"{name} ({error:.3g})" for name, error in worst)
        raise UnequalError(f"{len(wrong)} arrays differ by more than {measure}: {shown}")


def attempt(
    seed: Any, make: Callable[[], Spec], ran_serially: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """The outcome of a comparison: "equal", "unequal", "raises" or "plain raises"."""
    began = time.time()
    record: dict[str, Any] = {"seed": seed}
    try:
        spec = make()
        record["workers"] = spec.workers
        record.update(status="equal", **compare(spec, ran_serially))
    except UnequalError as error:
        record.update(status="unequal", reason=str(error))
    except PlainError as error:
        record.update(status="plain raises", reason=str(error))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)
        record.update(
            status="raises",
            reason=f"{type(error).__name__}: {error}"[:3000],
            where=[f"{f.filename}:{f.lineno} {f.name}" for f in last[-6:]],
        )
    record["seconds"] = round(time.time() - began, 2)
    return record
