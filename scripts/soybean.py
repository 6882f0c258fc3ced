"""SoyBean's worked example: bytes by data, by model and by mixed parallelism, and by our plans.

    python scripts/soybean.py --output docs/results     # soybean.json
    python scripts/soybean.py --smoke                   # the same, over four workers

Five layers of 300 units, batch 400, 16 devices. SoyBean counts, for every exchange, the exchanged
bytes once per device and direction: parameters by data parallelism, activations by model
parallelism. Our plans count what workers fetch (docs/search.md), so the figures of a row compare
with each other, not with SoyBean's. Nothing runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _common import context, write

from tofu.mx.model.sources import SymbolRequest, of_symbol
from tofu.planner.search import plan_graph
from tofu.plans import Problem, SearchOptions
from tofu.tables import table

LAYERS, UNITS, BATCH, DEVICES, GROUPS = 5, 300, 400, 16, 4
PAPER = {"data": 57.6e6, "model": 76.8e6, "mixed": 33.6e6}
SEARCHES = {
    "soybean": SearchOptions(mode="soybean"),
    "data-parallel": SearchOptions(mode="data-parallel"),
    "tofu": SearchOptions(),
    "tofu, replication allowed": SearchOptions(allow_replication=True),
}


def example(devices: int = DEVICES, groups: int = GROUPS) -> dict[str, float]:
    """The bytes that SoyBean counts for each kind of parallelism.

    >>> {kind: size / 1e6 for kind, size in example().items()}
    {'data': 57.6, 'model': 76.8, 'mixed': 33.6}
    """
    parameters = 4 * LAYERS * UNITS * UNITS
    activations = 4 * LAYERS * BATCH * UNITS
    inside = devices // groups
    return {
        "data": 2 * parameters * devices,
        "model": 2 * activations * devices,
        "mixed": 2 * parameters * groups + groups * (2 * activations / groups * inside),
    }


def problem(workers: int) -> Problem:
    """The training graph of the example."""
    import mxnet as mx

    symbol = mx.sym.var("data")
    for layer in range(LAYERS):
        symbol = mx.sym.FullyConnected(symbol, num_hidden=UNITS, no_bias=True, name=f"fc{layer}")
    request = SymbolRequest(
        Path("soybean"), {"data": (BATCH, UNITS)}, {"": "float32"}, frozenset(), "sgd", False
    )
    return of_symbol(symbol, request, workers=workers)


def measure(workers: int) -> Iterator[dict[str, Any]]:
    """The bytes of our plans over a number of workers."""
    case = problem(workers)
    for name, options in SEARCHES.items():
        plan = plan_graph(case, options)
        yield {
            "search": name,
            "bytes": plan.total_bytes,
            "cuts": [step.bytes for step in plan.steps],
            "quality": plan.quality(),
        }


def main() -> None:
    """Count, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="plans over four workers only")
    parser.add_argument("--output", type=Path, help="folder for soybean.json")
    args = parser.parse_args()
    workers = 4 if args.smoke else DEVICES
    counted, rows = example(), list(measure(workers))
    cells = [
        (kind, f"{counted[kind] / 1e6:.1f} MB", f"{PAPER[kind] / 1e6:.1f} MB") for kind in PAPER
    ]
    print("\n".join(table(("parallelism", "counted as SoyBean does", "SoyBean"), cells)))
    print()
    cells = [(row["search"], f"{row['bytes'] / 1e6:.1f} MB", row["quality"]) for row in rows]
    print("\n".join(table((f"plan over {workers} workers", "fetched", "quality"), cells)))
    print()
    sizes = ", ".join(f"{size / 1e6:.1f}" for size in rows[0]["cuts"])
    print(f"SoyBean's cuts, the first across the slowest links: {sizes} MB")
    if args.output is not None:
        document = {
            "name": "soybean", "modelled": "bytes counted; nothing was executed",
            "context": context(), "workers": workers, "example": counted, "paper": PAPER,
            "rows": rows,
        }  # fmt: skip
        print(f"written: {write(args.output, 'soybean', document)}")


if __name__ == "__main__":
    main()
