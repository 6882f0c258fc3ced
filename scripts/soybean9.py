"""SoyBean's Figure 9: a step of five convolutions under three kinds of parallelism.

    python scripts/soybean9.py --output docs/results     # soybean9.json, soybean9.svg
    python scripts/soybean9.py --smoke                   # reduced networks, in seconds

Nothing runs: every figure is simulated on a machine file's assumptions (docs/simulation.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import _soybean

LAYERS = 5
BATCH = 256
SIZES = ((6, 2048), (24, 512))  # pixels, filters; the images have as many channels
GPUS = (2, 4, 8)


def cases(smoke: bool) -> Sequence[_soybean.Case]:
    """Every size over every number of GPUs."""
    sizes = ((4, 32), (8, 16)) if smoke else SIZES
    batch = 16 if smoke else BATCH
    return [
        _soybean.Case(
            f"{pixels} x {pixels} pixels, {filters} filters",
            f"{workers} GPUs",
            batch,
            workers,
            _soybean.convolutions(batch, filters, pixels, LAYERS),
        )
        for pixels, filters in sizes
        for workers in GPUS
    ]


FIGURE = _soybean.Figure(
    name="soybean9",
    title=f"SoyBean, Figure 9: CNN of 5 layers, batch {BATCH}",
    systems=("data", "model", "soybean"),
    cases=cases,
)

if __name__ == "__main__":
    _soybean.main(FIGURE, __doc__ or "")
