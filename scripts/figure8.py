"""Figure 8 of the paper: the throughput of systems on twelve wide ResNets.

    python scripts/figure8.py --output docs/results     # figure8.json, figure8.svg
    python scripts/figure8.py --smoke                   # reduced models, in seconds

Nothing runs: every figure is simulated on a machine file's assumptions (docs/simulation.md).
"""

from __future__ import annotations

import _systems

COMPARISON = _systems.Comparison(
    name="figure8",
    title="Figure 8: WResNet",
    models=[f"wresnet-{depth}-{width}" for depth in (50, 101, 152) for width in (4, 6, 8, 10)],
    systems=("ideal", "smallbatch", "swap", "tofu", "time"),
    largest_batch=128,  # of the paper's ideal baseline
)

if __name__ == "__main__":
    _systems.main(COMPARISON, __doc__ or "")
