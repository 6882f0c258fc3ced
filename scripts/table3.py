"""Table 3 of the paper: the throughput of tofu and of operator placement on RNNs.

    python scripts/table3.py --output docs/results     # table3.json, table3.svg
    python scripts/table3.py --smoke                   # reduced models, in seconds

Nothing runs: every figure is simulated on a machine file's assumptions (docs/simulation.md).
"""

from __future__ import annotations

import _systems

COMPARISON = _systems.Comparison(
    name="table3",
    title="Table 3: RNN",
    models=[f"rnn-{layers}-4k" for layers in (6, 8, 10)],
    systems=("tofu", "placement"),
    largest_batch=512,
)

if __name__ == "__main__":
    _systems.main(COMPARISON, __doc__ or "")
