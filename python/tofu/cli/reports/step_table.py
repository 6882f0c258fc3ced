"""Compares a predicted step with the one that ``tofu trace`` measured, on the page of a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from tofu.cli.reports.trace_file import predicted
from tofu.errors import ConfigError
from tofu.planner.prediction import check_devices
from tofu.planner.search import default_fetch
from tofu.plans import Plan, Problem
from tofu.plans.render.explain import Section

__all__ = ["read_measured", "step_section"]

_ADVICE = "write it with tofu trace --format json"
_ACTIVITIES = (
    ("computes", "computation_us"),
    ("moves data", "fetch_us"),
    ("waits", "waiting_us"),
)


def read_measured(path: Path) -> dict[str, Any]:
    """The document that ``tofu trace --format json`` wrote.

    Raises:
        ConfigError: the file cannot be read, or is something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if (document["format"], document["version"]) != ("tofu-trace", 1):
            raise ValueError(f"found {document['format']}, version {document['version']}")
        for worker in document["workers"]:
            worker.update({key: float(worker[key]) for _, key in _ACTIVITIES})
        return {**document, "step_us": float(document["step_us"]), "steps": int(document["steps"])}
    except OSError as error:
        raise ConfigError(f"--measured {path}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"--measured {path}: is no measured step, version 1 ({error}); {_ADVICE}"
        ) from None


def step_section(
    problem: Problem,
    plan: Plan,
    machine: str,
    fetch: Optional[str],
    measured: Mapping[str, Any],
) -> Section:
    """The work of each worker in a step, as simulated and as measured.

    Args:
        problem: the graph.
        plan: its plan.
        machine: a machine's file or name.
        fetch: one of config.FETCHES; None: the default on such a machine.
        measured: the result of `read_measured`.

    Raises:
        ConfigError: there is no such machine, it has fewer devices, or the measured step had
            another number of workers.
    """
    from tofu.plans.machine_files import read_machine
    from tofu.simulate.simulation import simulate_plan

    described = read_machine(machine)
    check_devices(plan.workers, described)
    if len(measured["workers"]) != plan.workers:
        raise ConfigError(
            f"--measured: found a step of {len(measured['workers'])} workers, expected one of the "
            f"plan's {plan.workers}; {_ADVICE} --workers {plan.workers}"
        )
    simulation = simulate_plan(
        plan.in_graph(problem.table),
        described,
        fetch=fetch or default_fetch(described),
        with_timeline=True,
    )
    shares = predicted(simulation, problem.table).shares
    rows = [_row("a step", simulation.step_seconds * 1e6, measured["step_us"])]
    for number, (share, measured_us) in enumerate(zip(shares, measured["workers"])):
        times = share.computation, share.fetch, share.waiting
        rows += [
            _row(f"worker {number} {activity}", microseconds, measured_us[key])
            for (activity, key), microseconds in zip(_ACTIVITIES, times)
        ]
    steps = f"{measured['steps']} step{'s' * (measured['steps'] != 1)}"
    return Section(
        "A step, predicted and measured",
        f"Predicted by simulation on {described.name}; measured by tofu trace, the "
        f"mean of {steps} with all that the script ran, which may be more than this graph.",
        ("", "predicted", "measured", "measured / predicted"),
        tuple(rows),
    )


def _row(what: str, predicted_us: float, measured_us: float) -> tuple[str, ...]:
    ratio = f"{measured_us / predicted_us:.2f}" if predicted_us > 0 else "-"
    return what, f"{predicted_us / 1e3:,.3f} ms", f"{measured_us / 1e3:,.3f} ms", ratio
