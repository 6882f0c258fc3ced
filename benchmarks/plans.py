"""Plans every named model over 2 to 12 workers, and compares the bytes with those recorded.

    python benchmarks/plans.py --output docs/results/plans.json [--models NAME ...]

Prints each plan that got cheaper or dearer than the one in the file, and writes the new numbers.
Ends with status 1 if a plan is dearer or not proven optimal. Needs `pip install '.[mxnet-cpu]'`;
takes five minutes. tests/python/search/test_named_models.py plans some of the models again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from _results import write_json

WORKERS = range(2, 13)
# Model to number of workers to the bytes of the plan and a lower bound of any plan's bytes.
Record = dict[str, dict[str, tuple[int, int]]]


def plan_model(name: str, workers: Iterable[int] = WORKERS) -> dict[str, tuple[int, int]]:
    """Bytes and bound of a model's plan, by number of workers."""
    from tofu import _core
    from tofu.analysis.strategy_table import strategy_table
    from tofu.models import build

    table, _ = strategy_table(build(name).training_graph())
    costs = {}
    for count in workers:
        plan = _core.plan(table, workers=count)
        costs[str(count)] = (plan.total_bytes, plan.lower_bound_bytes)
    return costs


def complaints(before: Record, now: Record) -> list[str]:
    """Sentences on plans that are dearer than before, or not proven."""
    sentences = []
    for name, plans in now.items():
        for workers, (total, bound) in plans.items():
            where = f"{name}, {workers} workers"
            earlier = before.get(name, {}).get(workers, (total, 0))[0]
            if total > earlier:
                sentences.append(f"{where}: {total} bytes, {earlier} before")
            if total > bound:
                sentences.append(f"{where}: {total} bytes, not proven: the bound is {bound}")
    return sentences


def main() -> None:
    """Plan the models that the command line names."""
    from tofu.models import MODELS

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=sorted(MODELS))
    options = parser.parse_args()
    before: Record = {}
    if options.output.exists():
        before = json.loads(options.output.read_text(encoding="utf-8"))["models"]
    now: Record = {}
    cheaper = 0
    for name in options.models:
        now[name] = plan_model(name)
        earlier = before.get(name, {})
        cheaper += sum(total < earlier.get(k, (total,))[0] for k, (total, _) in now[name].items())
        print(f"{name}: {len(now[name])} plans", flush=True)
    wrong = complaints(before, now)
    write_json(options.output, {"models": dict(sorted({**before, **now}.items()))})
    count = sum(map(len, now.values()))
    print(f"{count} plans, {cheaper} cheaper than recorded, {len(wrong)} complaints")
    for complaint in wrong:
        print(complaint)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
