"""Figure 9 of the paper: the throughput of systems on nine RNNs.

    python scripts/figure9.py --output docs/results     # figure9.json, figure9.svg
    python scripts/figure9.py --smoke                   # reduced models, in seconds

Nothing runs: every figure is simulated on a machine file's assumptions (docs/simulation.md).
"""

from __future__ import annotations

import _systems

COMPARISON = _systems.Comparison(
    name="figure9",
    title="Figure 9: RNN",
    models=[f"rnn-{layers}-{hidden}k" for layers in (6, 8, 10) for hidden in (4, 6, 8)],
    systems=("ideal", "smallbatch", "swap", "placement", "tofu", "time"),
    largest_batch=512,  # of the paper's ideal baseline
)

if __name__ == "__main__":
    _systems.main(COMPARISON, __doc__ or "")
