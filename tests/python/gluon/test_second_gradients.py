"""Gradients of gradients (create_graph=True) run the block whole that computes the first ones."""

import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

from tofu.gluon.session.messages import TofuWarning

from .models import assert_same, plainly, started, weights

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def net(prefix, outputs):
    """Operators whose gradients MXNet can differentiate."""
    layers = nn.HybridSequential(prefix=prefix)
    with layers.name_scope():
        layers.add(nn.Dense(8), nn.HybridLambda("tanh"), nn.Dense(outputs))
    return started(layers, hybrid=False)


def gan(reads=False):
    """Train the critic of a WGAN with a gradient penalty, and the generator.

    reads: whether the script reads the scores before it differentiates them.
    """
    generator, critic = net("generator_", 6), net("critic_", 1)
    trainers = [
        gluon.Trainer(each.collect_params(), "adam", {"learning_rate": 0.01})
        for each in (generator, critic)
    ]
    found = []
    for step in range(3):
        real = nd.sin(nd.arange(24).reshape((4, 6)) + step)
        noise = nd.cos(nd.arange(12).reshape((4, 3)) * (step + 1))
        share = nd.array([[0.1], [0.4], [0.7], [0.9]])
        with autograd.record():
            fake = generator(noise).detach()
            between = share * real + (1 - share) * fake
            between.attach_grad()
            scores = critic(between)
            if reads:
                scores.asnumpy()
            (slope,) = autograd.grad(
                [scores], [between], [nd.ones_like(scores)], retain_graph=True, create_graph=True
            )
            penalty = (((slope**2).sum(axis=1).sqrt() - 1) ** 2).mean()
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        loss.backward()
        trainers[1].step(1)
        with autograd.record():
            cost = -critic(generator(noise)).mean()
        cost.backward()
        trainers[0].step(1)
        found += [loss, cost, slope]
    return found, weights(generator), weights(critic)


@pytest.mark.parametrize("reads", [False, True])
def test_a_wgan_with_a_gradient_penalty_trains_unchanged(workers, reads):
    expected = plainly(lambda: gan(reads=reads))
    with pytest.warns(TofuWarning, match="runs serially: autograd.grad asks for gradients") as told:
        found = gan(reads=reads)
    assert len([one for one in told if "runs serially" in str(one.message)]) == 1
    assert_same(found, expected)
