"""GPT-2, whose 50,257 words no number of workers divides."""

from __future__ import annotations

import pytest

pytest.importorskip("mxnet")

from mxnet.gluon import loss, nn

from tofu.models.transformer import Gpt
from tofu.mx.model.sources import from_block
from tofu.planner.decide import plan_problem

MIB = 2**20
WORDS, POSITIONS, UNITS = 50257, 1024, 768


class Trained(nn.HybridBlock):
    """GPT-2 with its loss."""

    def __init__(self):
        super().__init__()
        self.net = Gpt(layers=12, units=UNITS, heads=12, vocabulary=WORDS, positions=POSITIONS)
        self.loss = loss.SoftmaxCrossEntropyLoss()

    def hybrid_forward(self, F, tokens, following):
        return self.loss(self.net(tokens), following)


def test_gpt2_over_eight_workers_keeps_nothing_large_whole():
    shapes = [(8, POSITIONS), (8, POSITIONS)]
    problem = from_block(Trained(), shapes, dtypes={}, optimizer="adam", predict=False, workers=8)
    _, plan = plan_problem(problem)
    words = [each for each in plan.tensors if WORDS in each.shape and each.bytes > 100 * MIB]
    assert len(words) >= 9, "two weights, each with a gradient and two states, and the scores"
    whole = {each.name: each.bytes for each in plan.tensors if each.replicated}
    assert max(whole.values(), default=0) <= MIB, whole
