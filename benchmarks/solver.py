"""Measures the solver of problems with memory limits.

    python benchmarks/solver.py --output solver.json [--smoke] [FILE ...]

Each FILE (a step problem or one of the IOPDDL contest, gzipped or not) is solved five times
with its limit and five times without. Reports medians of processor time, including reading, and
of the time until the best choice was within 1% and 0.5% of the proven bound. Then solves random
problems of 50 to 500 variables, also with HiGHS and, if pytoulbar2 is installed, with toulbar2;
all must find the same cost. The last output is a table of measured values and their goals. Needs
`pip install '.[test,benchmark]'`, of which `benchmark` is pytoulbar2.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Optional

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "scripts")]

from _goals import Goal, table  # noqa: E402
from _problem_files import read_text, step_problem_text  # noqa: E402
from _results import write_json  # noqa: E402

REPEATS = 5
NUM_RANDOM = 20
WITHIN = (0.01, 0.005)
NO_LIMIT = -1
LARGE = 10_000  # variables
PROVEN_SECONDS = 1.0  # of a problem that is not large
WITHIN_SECONDS = (30.0, 60.0)  # of a large one


def solve_once(text: str, limit: Optional[int], seconds: float, threads: int) -> dict[str, Any]:
    """Solve a problem; return the processor time in total and of each better cost."""
    from tofu import _core

    costs: list[tuple[float, Optional[int]]] = []
    begin = time.process_time()
    solution = json.loads(
        _core.solve(
            text,
            limit=limit,
            time_limit_s=seconds,
            threads=threads,
            on_progress=lambda cost, _: costs.append((time.process_time() - begin, cost)),
        )
    )
    total = time.process_time() - begin
    within = {str(share): reached(costs, solution["bound"], share) for share in WITHIN}
    keys = ("status", "cost", "bound", "nodes", "cpu_seconds")
    variables = len(solution["values"] or [])
    record = {key: solution[key] for key in keys}
    return {**record, "variables": variables, "seconds": total, "within": within}


def reached(
    costs: list[tuple[float, Optional[int]]], bound: Optional[int], share: float
) -> Optional[float]:
    """The time when a cost was first at most `share` above the bound; None if never."""
    if bound is None:
        return None
    times = [at for at, cost in costs if cost is not None and cost <= bound * (1 + share)]
    return min(times, default=None)


def measure_file(path: Path, repeats: int, seconds: float, threads: int) -> list[dict[str, Any]]:
    """A record for the file's own limit and one without any."""
    text = step_problem_text(read_text(path))
    keys = ("variables", "status", "cost", "bound", "nodes")
    records = []
    for limit in (None, NO_LIMIT):
        runs = [solve_once(text, limit, seconds, threads) for _ in range(repeats)]
        first = runs[0]
        records.append(
            {
                "file": path.name,
                "limited": limit is None,
                **{key: first[key] for key in keys},
                "threads": threads,
                "within": {
                    share: median_or_none([run["within"][share] for run in runs])
                    for share in first["within"]
                },
                "median_seconds": statistics.median(run["seconds"] for run in runs),
                "median_search_seconds": statistics.median(run["cpu_seconds"] for run in runs),
            }
        )
    return records


def median_or_none(times: list[Optional[float]]) -> Optional[float]:
    """The median; None if one of them is."""
    finished = [time for time in times if time is not None]
    return statistics.median(finished) if len(finished) == len(times) else None


def goals(files: list[dict[str, Any]]) -> list[Goal]:
    """The table of goals for the records of files."""
    rows = []
    for record in files:
        work = f"{record['file']}, {'with its' if record['limited'] else 'without a'} limit"
        took = record["median_seconds"]
        proven = record["status"] == "optimal"
        end = f"{'proven' if proven else 'ended'} after {took:.2f} s"
        if record["variables"] < LARGE:
            rows.append(Goal(work, end, f"{PROVEN_SECONDS:g} s", proven and took <= PROVEN_SECONDS))
            continue
        times = [record["within"][str(share)] for share in WITHIN]
        moments = [
            f"{share:.1%} never" if at is None else f"{share:.1%} after {at:.2f} s"
            for share, at in zip(WITHIN, times)
        ]
        targets = [f"{share:.1%} in {limit:g} s" for share, limit in zip(WITHIN, WITHIN_SECONDS)]
        met = all(at is not None and at <= most for at, most in zip(times, WITHIN_SECONDS))
        work = f"{work}, {record['threads']} threads"
        rows.append(Goal(work, ", ".join([*moments, end]), ", ".join(targets), met))
    return rows


def compare(seed: int) -> dict[str, Any]:
    """Solve a random problem with each installed solver.

    Raises:
        RuntimeError: the solvers do not find the same cost.
    """
    import _integer_program
    import _random_problems

    problem = _random_problems.random_problem(seed)
    solution = solve_once(json.dumps(problem), None, 600, 1)
    record = {"seed": seed, "variables": len(problem["domains"]), "cost": solution["cost"]}
    record["seconds"] = solution["seconds"]
    others: dict[str, tuple[Optional[int], float]] = {}
    begin = time.process_time()
    try:
        cost: Optional[int] = _integer_program.solve(problem).cost
    except _integer_program.InfeasibleError:
        cost = None
    others["highs"] = (cost, time.process_time() - begin)
    # toulbar2 may take more than ten minutes where memory is limited.
    is_limited = bool(problem.get("memory"))
    if not is_limited and importlib.util.find_spec("pytoulbar2") is not None:
        import _weighted_csp

        others["toulbar2"] = _weighted_csp.solve(problem)
    for name, (other_cost, seconds) in others.items():
        if other_cost != solution["cost"]:
            raise RuntimeError(
                f"seed {seed}: {name} found {other_cost}, the solver {solution['cost']}"
            )
        record[f"{name}_seconds"] = seconds
    return record


def main() -> None:
    """Solve the files and the random problems, print the table and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--smoke", action="store_true", help="few and small problems, once each")
    parser.add_argument("--time", type=float, default=60.0, help="seconds for each run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--random", type=int, default=NUM_RANDOM, help="random problems that HiGHS solves, too"
    )
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    repeats = 1 if options.smoke else REPEATS
    files = []
    for path in options.files:
        for record in measure_file(path, repeats, options.time, options.threads):
            files.append(record)
            print(json.dumps(record), flush=True)
    if importlib.util.find_spec("pytoulbar2") is None:
        print("toulbar2 is left out: pytoulbar2 is not installed", file=sys.stderr)
    random_problems = []
    for seed in range(1, 3 if options.smoke else 1 + options.random):
        random_problems.append(compare(seed))
        print(json.dumps(random_problems[-1]), flush=True)
    rows = goals(files)
    print(table(rows))
    document = {"smoke": options.smoke, "goals": [dataclasses.asdict(row) for row in rows]}
    document.update(files=files, random=random_problems)
    write_json(options.output, document)


if __name__ == "__main__":
    main()
