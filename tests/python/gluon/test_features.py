"""Other features of Gluon give the same results with and without the switch."""

import contextlib
import io
import json
import logging
import os
import textwrap

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

from tofu.gluon.training.parameter import is_tiled

from ..support import forked
from .models import assert_same, plainly, started, weights

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:.*no dimension of", "ignore:Cannot decide type"
)


def make(prefix="features_"):
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(12, activation="tanh", in_units=6), nn.Dense(6, in_units=12))
    return started(net)


def data(size=12):
    return mx.nd.array(np.random.RandomState(1).uniform(-1, 1, (size, 6)))


def trainer_of(net, optimizer="sgd", **options):
    return gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.05, **options})


def steps(net, trainer, count=3):
    losses = []
    for _ in range(count):
        with autograd.record():
            loss = ((net(data()) - data()) ** 2).sum()
        loss.backward()
        trainer.step(12)
        losses.append(loss)
    return losses


def trained(net, **options):
    return steps(net, trainer_of(net, **options)), weights(net)


def same_as_plainly(run, *args):
    assert_same(run(*args), plainly(run, *args), rounded=True)


# --- Symbols -------------------------------------------------------------------------------


def called_with_a_symbol():
    net = make()
    trained(net)
    symbol = net(mx.sym.var("data"))
    values = {name: p.data() for name, p in net.collect_params().items()}
    executor = symbol.bind(mx.cpu(), {"data": data(), **values})
    hidden = symbol.get_internals()[3]
    features = gluon.SymbolBlock(hidden, mx.sym.var("data"), params=net.collect_params())
    return executor.forward()[0], features(data()), trained(net)


def test_calls_with_symbols(two):
    same_as_plainly(called_with_a_symbol)


def loss_as_a_symbol():
    net = make()
    loss = mx.sym.sum(mx.sym.square(net(mx.sym.var("data"))))
    block = gluon.SymbolBlock(loss, [mx.sym.var("data")], params=net.collect_params())
    trainer, losses = trainer_of(block), []
    for _ in range(3):
        with autograd.record():
            value = block(data())
        value.backward()
        trainer.step(12)
        losses.append(value)
    return losses, weights(net), net(data())


def test_symbol_blocks_share_parameters(two):
    same_as_plainly(loss_as_a_symbol)


def exported(path):
    net = make()
    trained(net)
    net.export(path, 3)
    module = mx.mod.Module.load(path, 3, label_names=None)
    module.bind([("data", (12, 6))], for_training=False)
    module.forward(mx.io.DataBatch([data()]))
    block = gluon.SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0003.params")
    return module.get_outputs(), block(data()), trained(block)


def test_exported_nets_in_a_module(two, tmp_path):
    same_as_plainly(exported, str(tmp_path / "net"))


def summaries():
    net, texts = make(), []
    for hybrid in (True, False, True):
        net.hybridize(hybrid)
        if hybrid:
            trained(net)
            continue
        with contextlib.redirect_stdout(io.StringIO()) as text:
            net.summary(data())
        texts.append(text.getvalue())
    with pytest.raises(AssertionError, match="hybridized"):
        net.summary(data())
    return texts, weights(net)


def test_summary(two):
    (found, values), (expected, others) = summaries(), plainly(summaries)
    assert found == expected
    assert_same(values, others, rounded=True)


# --- Shared parameters, states and lengths -------------------------------------------------


def shared_weights():
    first = nn.Dense(6, in_units=6, prefix="shared_")
    second = nn.Dense(6, in_units=6, prefix="shared_", params=first.params)
    net = nn.HybridSequential(prefix="sharing_")
    net.add(first, nn.Activation("tanh"), second)
    started(net)
    found = trained(net)
    second.hybridize()
    return found, second(data()), trained(second)


def test_blocks_that_share_parameters(two):
    same_as_plainly(shared_weights)


def shared_encoder():
    encoder = started(nn.Dense(6, in_units=6, prefix="encoder_"))
    nets = []
    for prefix in ("left_", "right_"):
        net = nn.HybridSequential(prefix=prefix)
        net.add(encoder, nn.Dense(6, in_units=6, prefix=f"{prefix}dense_"))
        nets.append(started(net))
    parameters = nets[0].collect_params()
    parameters.update(nets[1].collect_params())
    trainer, losses = gluon.Trainer(parameters, "sgd", {"learning_rate": 0.01}), []
    for _ in range(3):
        with autograd.record():
            loss = sum((net(data()) ** 2).sum() for net in nets)
        loss.backward()
        trainer.step(12)
        losses.append(loss)
    return losses, {name: p.data() for name, p in parameters.items()}


@pytest.mark.filterwarnings("ignore:Parameter '.*' is already initialized")
def test_nets_that_share_an_encoder(two):
    same_as_plainly(shared_encoder)


class Language(gluon.HybridBlock):
    """A language model that takes and returns the states of its recurrent layer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.words = nn.Embedding(10, 8)
            self.layer = rnn.LSTM(8, input_size=8)
            self.scores = nn.Dense(10, flatten=False, in_units=8)

    def hybrid_forward(self, F, x, hidden, cell):
        y, states = self.layer(self.words(x), [hidden, cell])
        return self.scores(y), *states


def language(detached):
    net = started(Language(prefix="language_"))
    trainer, losses = trainer_of(net), []
    states = [mx.nd.zeros((1, 6, 8)) for _ in range(2)]
    tokens = mx.nd.array(np.random.RandomState(0).randint(0, 10, (13, 6)))
    loss_of = gluon.loss.SoftmaxCELoss()

    def part(begin):
        scores, *states_then = net(tokens[begin : begin + 4], *states)
        return loss_of(scores, tokens[begin + 1 : begin + 5]).sum(), states_then

    if detached:
        for begin in (0, 4, 8):
            states = [state.detach() for state in states]
            with autograd.record():
                loss, states = part(begin)
            loss.backward()
            gradients = [p.grad() for p in net.collect_params().values()]
            losses.append(mx.nd.array([gluon.utils.clip_global_norm(gradients, 1.0)]))
            trainer.step(1)
            losses.append(loss)
    else:  # through all parts
        with autograd.record():
            for begin in (0, 4, 8):
                loss, states = part(begin)
                losses.append(loss)
            total = sum(losses)
        total.backward()
        trainer.step(1)
    return losses, weights(net)


@pytest.mark.parametrize("detached", [True, False])
def test_states_between_batches(detached, two):
    same_as_plainly(language, detached)


class Masked(gluon.HybridBlock):
    """A sum over as many words as a sequence has."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.words = nn.Embedding(10, 8)
            self.dense = nn.Dense(6, flatten=False, in_units=8)

    def hybrid_forward(self, F, x, lengths):
        y = self.dense(self.words(x))
        return F.sum(F.SequenceMask(y, lengths, use_sequence_length=True, axis=1), axis=1)


class Unrolled(gluon.HybridBlock):
    """A bidirectional cell, unrolled over sequences of their own lengths."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.words = nn.Embedding(10, 6)
            self.cell = rnn.BidirectionalCell(*(rnn.LSTMCell(6, input_size=6) for _ in range(2)))
            self.dense = nn.Dense(6, in_units=12, flatten=False)

    def hybrid_forward(self, F, x, lengths):
        y, _ = self.cell.unroll(
            4, self.words(x), layout="NTC", merge_outputs=True, valid_length=lengths
        )
        return self.dense(y)


def of_lengths(block, sizes):
    net = started(block(prefix="lengths_"))
    trainer, losses = trainer_of(net), []
    for size in sizes:
        random = np.random.RandomState(size)
        x = mx.nd.array(random.randint(0, 10, (12, size)))
        lengths = mx.nd.array(random.randint(1, size + 1, (12,)))
        with autograd.record():
            loss = (net(x, lengths) ** 2).sum()
        loss.backward()
        trainer.step(12)
        losses.append(loss)
    return losses, weights(net)


@pytest.mark.parametrize(("block", "sizes"), [(Masked, (4, 7, 5, 4, 7)), (Unrolled, (4, 4))])
def test_lengths_and_buckets(block, sizes, two):
    same_as_plainly(of_lengths, block, sizes)


# --- Requests, hooks, and arguments of the Trainer -----------------------------------------


def requests():
    net, found = make(), []
    trainer = trainer_of(net)
    for request in ("write", "add", "add", "null", "write", "add"):
        net[0].collect_params().setattr("grad_req", request)
        for _ in range(2):
            with autograd.record():
                loss = (net(data()) ** 2).sum()
            loss.backward()
        parameters = net.collect_params().values()
        found.append([loss, *(p.grad().copy() for p in parameters if p.grad_req != "null")])
        trainer.step(12, ignore_stale_grad=True)
        if request == "add":
            net.collect_params().zero_grad()
    return found, weights(net)


def test_gradient_requests(two):
    same_as_plainly(requests)


def hooked():
    net, seen = make(), []
    after = net.register_forward_hook(lambda _, x, y: seen.append((x[0].sum(), y.sum())))
    before = net.register_forward_pre_hook(lambda _, x: seen.append(x[0].mean()))
    trainer = trainer_of(net)
    losses = steps(net, trainer, 2)
    after.detach()
    losses += steps(net, trainer, 1)
    before.detach()
    return losses + steps(net, trainer, 1), seen, weights(net), is_tiled(net[0].weight)


def test_hooks_on_the_outermost_block(two):
    (*found, tiled), (*expected, _) = hooked(), plainly(hooked)
    assert tiled and len(found[1]) == 5
    assert_same(found, expected, rounded=True)


def two_losses():
    left, right = make("left_"), make("right_")
    trainers, losses = [trainer_of(left), trainer_of(right)], []
    for _ in range(3):
        with autograd.record():
            y = left(data())
            loss = (right(y.detach()) ** 2).sum() + (y**2).sum()
        loss.backward()
        for trainer in trainers:
            trainer.step(12)
        losses.append(loss)
    return losses, weights(left), weights(right)


def test_detaching_between_nets(two):
    same_as_plainly(two_losses)


def lambdas():
    net = nn.HybridSequential(prefix="lambdas_")
    net.add(
        nn.Dense(6, in_units=6, prefix="lambdas_dense_"),
        nn.HybridLambda("tanh"),
        nn.HybridLambda(lambda F, x: F.softsign(x)),
    )
    return trained(started(net))


def test_lambdas(two):
    same_as_plainly(lambdas)


def multiplied():
    net = make()
    net[0].weight.lr_mult, net[1].weight.wd_mult, net[1].bias.lr_mult = 0.1, 3.0, 0.0
    return trained(net, wd=0.1, momentum=0.9, clip_gradient=0.5)


def test_multipliers(two):
    same_as_plainly(multiplied)


OPTIMIZERS = {
    **{name: {"momentum": 0.9} for name in ("sgd", "nag", "signum", "lbsgd")},
    **{name: {} for name in ("adam", "adamax", "adadelta", "adagrad", "ftml", "ftrl", "nadam")},
    "rmsprop": {"centered": True},
    "test": {},
}


def optimized(name):
    net = make()
    return trained(net, optimizer=name, **OPTIMIZERS[name])


@pytest.mark.filterwarnings("ignore:.*does not update every element")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, two):
    same_as_plainly(optimized, name)


def test_all_optimizers_are_tested():
    """Others draw random numbers, take sparse rows, fail in MXNet, or are in test_norm_updates."""
    others = {
        "sgld",
        "groupadagrad",
        "dcasgd",
        "ccsgd",
        "lamb",
        "lars",
        "centered",
        "centeredalong",
    }
    assert set(mx.optimizer.Optimizer.opt_registry) - others == set(OPTIMIZERS)


def estimated():
    from mxnet.gluon.contrib.estimator import Estimator

    net = make()
    trainer = trainer_of(net, momentum=0.9)
    estimator = Estimator(
        net=net,
        loss=gluon.loss.L2Loss(),
        train_metrics=[mx.metric.MAE()],
        trainer=trainer,
        context=mx.cpu(),
    )
    estimator.logger.setLevel(logging.ERROR)
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(data(24), data(24)), 8)
    estimator.fit(train_data=loader, val_data=loader, epochs=2)
    metrics = [*estimator.train_metrics, *estimator.val_metrics]
    return [np.array(metric.get()[1]) for metric in metrics], weights(net)


def test_the_estimator(two):
    same_as_plainly(estimated)


# --- Mixed precision -----------------------------------------------------------------------

AMP = """
import json
import mxnet as mx, numpy as np
from mxnet import autograd, gluon
from mxnet.contrib import amp
amp.init(target_dtype="bfloat16")  # what MXNet can compute on a CPU; for good
mx.random.seed(3), np.random.seed(3)
net = gluon.nn.HybridSequential(prefix="net_")
with net.name_scope():
    net.add(gluon.nn.Dense(12, activation="tanh", in_units=6), gluon.nn.Dense(6, in_units=12))
net.initialize(mx.init.Xavier())
net.hybridize()
x = mx.nd.array(np.random.uniform(-1, 1, (12, 6)))
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
amp.init_trainer(trainer)
losses, scales, weights = [], [], []
for step in range(6):
    with autograd.record():
        loss = ((net(x).astype("float32") - x) ** 2).sum()
        if step in (2, 3):
            loss = loss * 1e38
        with amp.scale_loss(loss, trainer) as scaled:
            autograd.backward(scaled)
    trainer.step(12)
    losses.append(float(loss.asscalar()) / (1e38 if step in (2, 3) else 1))
    scales.append(trainer._amp_loss_scaler.loss_scale)
    weights.append(net[0].weight.data().asnumpy().tobytes().hex())
print(json.dumps([losses, scales, [weights[i] == weights[i + 1] for i in range(5)]]))
"""


@pytest.mark.parametrize("workers", [2, 3])
def test_automatic_mixed_precision_with_scaled_losses(workers):
    def run(**switch):
        quiet = "import warnings\nwarnings.simplefilter('ignore')\n"
        done = forked.run(["-c", quiet + textwrap.dedent(AMP)], env={**os.environ, **switch})
        if not switch and "primitive descriptor" in done.stderr:
            pytest.skip("oneDNN computes bfloat16 only with AVX-512, which this CPU lacks")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    (losses, scales, skipped), _ = run()
    found, told = run(MXNET_GRAPH_PASS="tofu", TOFU_WORKERS=str(workers), TOFU_DEVICE="cpu")
    assert f"over {workers} workers" in told and "runs serially" not in told
    np.testing.assert_allclose(found[0], losses, rtol=0.02)  # 8 bits
    assert found[1:] == [scales, skipped]
    assert skipped == [False, True, True, False, False]
