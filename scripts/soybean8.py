"""SoyBean's Figure 8: a step of four fully connected layers under three kinds of parallelism.

    python scripts/soybean8.py --output docs/results     # soybean8.json, soybean8.svg
    python scripts/soybean8.py --smoke                   # reduced networks, in seconds

Nothing runs: every figure is simulated on a machine file's assumptions (docs/simulation.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import _soybean

LAYERS = 4
SIZES = ((512, 8192), (2048, 8192), (2048, 12288))  # batch, units
GPUS = (2, 4, 8)


def cases(smoke: bool) -> Sequence[_soybean.Case]:
    """Every size over every number of GPUs."""
    sizes = ((32, 64), (128, 64)) if smoke else SIZES
    return [
        _soybean.Case(
            f"batch {batch}, {units} x {units} weights",
            f"{workers} GPUs",
            batch,
            workers,
            _soybean.products(batch, units, LAYERS),
        )
        for batch, units in sizes
        for workers in GPUS
    ]


FIGURE = _soybean.Figure(
    name="soybean8",
    title="SoyBean, Figure 8: MLP of 4 layers",
    systems=("data", "model", "soybean"),
    cases=cases,
)

if __name__ == "__main__":
    _soybean.main(FIGURE, __doc__ or "")
