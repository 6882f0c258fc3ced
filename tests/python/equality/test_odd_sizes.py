"""A net whose sizes no number of workers divides trains under every plan as it does whole."""

import dataclasses
import functools

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tofu
from tofu.config import MODES
from tofu.gluon.session.session import looking
from tofu.planner.search import plan_graph
from tofu.plans import SearchOptions
from tofu.plans import file as plan_file

from .moved_bytes import wrong_bytes

WORDS, LENGTH, UNITS = 51, 5, 9
BATCHES = (15, 15, 10, 7)
TOLERANCES = {"float64": 1e-11, "float32": 2e-5}


class Tied(nn.HybridBlock):
    """Words, convolutions of three neighbours, and scores from the words' own vectors."""

    def __init__(self):
        super().__init__(prefix="net_")
        with self.name_scope():
            self.words = nn.Embedding(WORDS, UNITS)
            self.layers = nn.HybridSequential()
            self.layers.add(
                nn.Conv1D(13, 3, padding=1, in_channels=UNITS),
                nn.BatchNorm(in_channels=13),
                nn.Activation("relu"),
                nn.MaxPool1D(3, 1, padding=1),
                nn.Conv1D(UNITS, 1, in_channels=13),
            )
            self.norm = nn.LayerNorm(in_channels=UNITS)
            self.scores = nn.Dense(
                WORDS, flatten=False, use_bias=False, in_units=UNITS, params=self.words.params
            )

    def hybrid_forward(self, F, tokens):
        found = self.words(tokens)
        mixed = F.swapaxes(self.layers(F.swapaxes(found, 1, 2)), 1, 2)
        return self.scores(self.norm(found + mixed))


class Run:
    """The net and its Trainer."""

    def __init__(self, dtype):
        mx.random.seed(3)
        np.random.seed(3)
        self.dtype, self.net = dtype, Tied()
        self.net.initialize(mx.init.Xavier(magnitude=2))
        self.net.cast(dtype)
        self.net.hybridize()
        options = {"learning_rate": 0.1, "momentum": 0.9}
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", options)
        self.losses = []

    def train(self, steps):
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        for step in steps:
            tokens = np.random.RandomState(step).randint(0, WORDS, (BATCHES[step], LENGTH))
            tokens = mx.nd.array(tokens, dtype=self.dtype)
            with autograd.record():
                loss = loss_of(self.net(tokens), tokens[:, ::-1])
            loss.backward()
            self.trainer.step(len(tokens))
            self.losses.append(loss.asnumpy())

    def weights(self):
        return {n: p.data().asnumpy() for n, p in self.net.collect_params().items()}


def trained(dtype):
    run = Run(dtype)
    run.train(range(len(BATCHES)))
    return run.losses, run.weights()


serial = functools.cache(trained)


def assert_close(found, dtype):
    losses, weights = serial(dtype)
    tolerance = TOLERANCES[dtype]
    for one, other in zip(found[0], losses):
        np.testing.assert_allclose(one, other, tolerance, tolerance)
    for name, value in weights.items():
        np.testing.assert_allclose(found[1][name], value, tolerance, tolerance, err_msg=name)


def check(dtype, **options):
    """Train partitioned, compare, and return the programs."""
    made = []
    tofu.enable(device="cpu", log="quiet", strict=True, **options)
    try:
        with looking(compiled=made.append):
            found = trained(dtype)
    finally:
        tofu.disable()
    assert_close(found, dtype)
    assert not any(map(wrong_bytes, made)), [*map(wrong_bytes, made)]
    return made


WAYS = {
    **{mode: {"search": mode} for mode in MODES},
    "replication": {"allow_replication": True},
    "recompute": {"recompute": "all"},
    "copies": {"fetch": "plain"},
}
WHOLE = [
    pytest.param(workers, dtype, marks=() if sampled else pytest.mark.whole)
    for workers in (2, 3, 5, 6, 7)
    for dtype in TOLERANCES
    for sampled in [(workers, dtype) == (7, "float64")]
]


@pytest.mark.parametrize(("workers", "dtype"), WHOLE)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_plan(way, workers, dtype):
    check(dtype, workers=workers, **WAYS[way])


@pytest.mark.parametrize("workers", [3, 7])
def test_a_saved_plan(workers, tmp_path):
    problems, path = [], tmp_path / "net.plan"

    def keep(problem):
        problems.append(dataclasses.replace(problem, name="net"))

    tofu.enable(workers=workers, device="cpu", log="quiet")
    try:
        with looking(problem=keep):
            Run("float64").train(range(1))
    finally:
        tofu.disable()
    pins = (("net_embedding0_weight", (1,) * len(plan_graph(problems[0]).parts)),)
    plan_file.save(path, plan_graph(problems[0], SearchOptions(pins=pins)))
    made = check("float64", workers=workers, plan=path)
    (cuts,) = {v.layout for n, v in made[0].variables.items() if n == "net_embedding0_weight"}
    assert [box.shape[0] for box in cuts.boxes] == [WORDS] * workers


@pytest.mark.parametrize("sequence", [(3, 4, 2, 0), (0, 7, 5, 3)])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_checkpoints_go_from_one_number_of_workers_to_another(sequence, dtype, tmp_path):
    losses = []
    for step, workers in enumerate(sequence):
        if workers:
            tofu.enable(workers=workers, device="cpu", log="quiet", strict=True)
        try:
            run = Run(dtype)
            if step:
                run.net.load_parameters(str(tmp_path / "net"))
                run.trainer.load_states(str(tmp_path / "states"))
            run.train([step])
            run.net.save_parameters(str(tmp_path / "net"))
            run.trainer.save_states(str(tmp_path / "states"))
            losses += run.losses
            weights = run.weights()
        finally:
            tofu.disable()
    assert_close((losses, weights), dtype)
