"""SoyBean's Figure 10: the speedup of AlexNet and VGG over 8 GPUs by batch size.

    python scripts/soybean10.py --output docs/results     # soybean10.json, soybean10.svg
    python scripts/soybean10.py --smoke                   # reduced networks, in seconds

Nothing runs: every figure is simulated on a machine file's assumptions (docs/simulation.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import _soybean
from _common import problem

from tofu.plans import Problem

BATCHES = (64, 128, 256, 512, 1024)
MODELS = ("alexnet", "vgg-16")
GPUS = 8


def _problem(model: str, batch: int, smoke: bool, workers: int) -> Problem:
    return problem(model, batch_size=batch, workers=workers, reduced=smoke, optimizer="sgd")


def cases(smoke: bool) -> Sequence[_soybean.Case]:
    """Every network with every batch."""
    batches = (8, 16) if smoke else BATCHES
    return [
        _soybean.Case(model, str(batch), batch, GPUS, partial(_problem, model, batch, smoke))
        for model in MODELS
        for batch in batches
    ]


FIGURE = _soybean.Figure(
    name="soybean10",
    title="SoyBean, Figure 10: speedup over 8 GPUs by batch size",
    systems=("data", "soybean"),
    cases=cases,
    is_speedup=True,
)

if __name__ == "__main__":
    _soybean.main(FIGURE, __doc__ or "")
