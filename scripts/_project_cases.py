"""Public projects' models, each trained for some steps as its users train it.

    python scripts/_project_cases.py CASE FILE.npz        # writes losses, weights and outputs
    python scripts/_project_cases.py CASE FILE.npz 3e-7   # with weights that begin that much apart
    python scripts/_project_cases.py CASE FILE.npz 0 float64    # gluoncv2's nets in this type

scripts/projects.py runs this plainly and under tofu. Random layers such as Dropout are turned off,
as a partitioned graph draws other numbers; all else is the project's.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Iterator
from typing import Any, Callable

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

__all__ = ["CASES", "run"]

Values = dict[str, Any]
_STEPS = 3

# Nets of gluoncv2: for pictures of 32 x 32, and for pictures of 224 x 224.
_SMALL = (
    "resnet20_cifar10", "preresnet20_cifar10", "resnext29_32x4d_cifar10", "seresnet20_cifar10",
    "sepreresnet20_cifar10", "densenet40_k12_cifar10", "nin_cifar10", "ror3_56_cifar10",
    "rir_cifar10", "diaresnet20_cifar10", "diapreresnet20_cifar10",
)  # fmt: skip
_LARGE = (
    "alexnet", "resnet10", "preresnet10", "seresnet10", "bninception", "squeezenet_v1_1",
    "squeezeresnet_v1_1", "mobilenet_wd4", "fdmobilenet_wd4", "mobilenetv2_wd4", "igcv3_wd4",
    "mobilenetv3_small_w7d20", "shufflenet_g1_wd4", "shufflenet_g3_wd4", "shufflenetv2_wd2",
    "menet108_8x1_g3", "mnasnet_small", "proxylessnas_gpu", "fbnet_cb", "efficientnet_b0",
    "ghostnet", "darknet_tiny", "darknet_ref", "condensenet74_c4_g4", "peleenet", "sqnxt23_w1",
    "hardnet39ds", "regnetx002", "vovnet27s", "selecsls42", "dla34", "spnasnet",
    "airnet50_1x64d_r2", "bagnet9", "diracnet18v2", "resneta10", "espnetv2_wd2",
    "hrnet_w18_small_v1",
)  # fmt: skip
_GLUONTS = (
    "deepar", "transformer", "tft", "wavenet", "n_beats", "lstnet", "gpvar", "deepstate",
    "simple_feedforward", "mqcnn", "mqrnn", "deep_factor", "deepvar", "deep_renewal",
    "canonical_rnn", "canonical_mlp",
)  # fmt: skip
# Options of sockeye.train.
_SOCKEYE = {
    "transformer": "--encoder transformer --weight-tying-type src_trg_softmax",
    "untied": "--encoder transformer --weight-tying-type none",
    "ssru": "--encoder transformer --decoder ssru_transformer --weight-tying-type trg_softmax",
    "length": "--length-task ratio --length-task-weight 1.0 --length-task-layers 1",
    "lhuc": "--lhuc all --label-smoothing 0.1",
    "interval": "--update-interval 2",
}
_FUSION = ("normal", "regression", "gaussian_process", "sparse_gaussian_process")
_D2L = ("lenet", "resnext", "rnn", "gru", "seq2seq", "transformer", "bert", "softmax_regression")


def run(case: str, *dtype: str) -> Values:
    """The results of a case, as arrays by name; `dtype`: the type of a net of gluoncv2."""
    random.seed(1)
    np.random.seed(1)
    mx.random.seed(1)
    return CASES[case](*dtype)


def _shift(share: float) -> None:
    """Have initializers write values that are larger or smaller by this share.

    BatchNorm would undo a change of all weights of a layer alike.
    """
    plain = mx.init.Initializer.__call__

    def call(self: Any, name: Any, array: Any) -> None:
        plain(self, name, array)
        signs = np.random.RandomState(len(name)).choice([-1, 1], array.shape)
        array[:] = array.asnumpy() * (1 + share * signs)

    mx.init.Initializer.__call__ = call


def _vision(name: str, size: int, dtype: str = "float32") -> Values:
    from gluoncv2.model_provider import get_model

    net = get_model(name, pretrained=False)
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    pictures = np.random.uniform(-1, 1, (4, 3, size, size))
    batch = mx.nd.array(pictures, dtype=dtype), mx.nd.array([1, 3, 5, 7])
    net.hybridize()
    return _train(net, gluon.loss.SoftmaxCrossEntropyLoss(), [batch] * _STEPS)


def _train(net: Any, loss_of: Any, batches: list[tuple[Any, ...]], rate: float = 0.02) -> Values:
    """Train by momentum; the last array of a batch is its label."""
    _calm(net)
    trainer = None
    found: Values = {}
    for number, (*inputs, label) in enumerate(batches):
        with autograd.record():
            outputs = net(*inputs)
            outputs = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
            loss = loss_of(outputs, label)
        loss.backward()
        if trainer is None:
            options = {"learning_rate": rate, "momentum": 0.9, "wd": 1e-4}
            trainer = gluon.Trainer(net.collect_params(), "sgd", options)
        trainer.step(len(label), ignore_stale_grad=True)
        found[f"loss {number}"] = loss.asnumpy()
    found["prediction"] = _first(net(*batches[0][:-1])).asnumpy()
    return {**found, **_weights(net)}


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) else value


def _calm(block: Any) -> None:
    """Have dropout drop nothing, in a block and all blocks inside it."""

    def calm(each: Any) -> None:
        for name in ("_rate", "_dropout", "dropout_rate"):
            if isinstance(vars(each).get(name), float):
                setattr(each, name, 0.0)

    block.apply(calm)


def _weights(net: Any) -> Values:
    parameters = net.collect_params().values()
    return {
        f"weight {number}": parameter.data().asnumpy()
        for number, parameter in enumerate(parameters)
        if parameter._data is not None
    }


def _series(count: int = 4, length: int = 80) -> Any:
    from gluonts.dataset.common import ListDataset

    def wave(shift: int) -> Any:
        return 5 + np.sin(np.arange(length) / 3 + shift) + np.random.uniform(0, 1, length)

    return ListDataset(
        [
            {
                "start": "2021-01-01",
                "target": wave(each),
                "feat_static_cat": [each % 2],
            }
            for each in range(count)
        ],
        freq="D",
    )


def _forecast(name: str) -> Values:
    """Train an estimator of GluonTS for an epoch, with its own trainer and loaders."""
    from gluonts.mx import Trainer

    trainer = Trainer(ctx=mx.cpu(), epochs=2, num_batches_per_epoch=4, learning_rate=1e-2)
    seen: list[float] = []
    estimator = _estimator(name, trainer)
    inner = estimator.create_training_network
    made: list[Any] = []

    def create(*args: Any, **kwargs: Any) -> Any:
        net = inner(*args, **kwargs)
        _calm(net)
        made.append(net)
        return net

    estimator.create_training_network = create
    call = gluon.Block.__call__

    def told(self: Any, *args: Any) -> Any:
        result = call(self, *args)
        if made and self is made[0]:
            seen.append(float(_first(result).mean().asscalar()))
        return result

    gluon.Block.__call__ = told
    estimator.train(_multivariate(name, _series()))
    return {"losses": np.array(seen), **_weights(made[0])}


def _multivariate(name: str, series: Any) -> Any:
    if name not in ("lstnet", "gpvar", "deepvar"):
        return series
    from gluonts.dataset.multivariate_grouper import MultivariateGrouper

    return MultivariateGrouper(max_target_dim=4)(series)


def _estimator(name: str, trainer: Any) -> Any:
    import gluonts.mx as ts
    from gluonts.mx import model

    common: dict[str, Any] = {"prediction_length": 6, "trainer": trainer}
    daily = {**common, "freq": "D"}
    dropless = {"dropout_rate": 0.0}
    makers: dict[str, Callable[[], Any]] = {
        "deepar": lambda: ts.DeepAREstimator(
            **daily, **dropless, num_layers=2, num_cells=24, use_feat_static_cat=True,
            cardinality=[2],
        ),
        "transformer": lambda: ts.TransformerEstimator(**daily, **dropless, model_dim=16),
        "tft": lambda: ts.TemporalFusionTransformerEstimator(
            **daily, **dropless, hidden_dim=16, num_heads=2
        ),
        "wavenet": lambda: ts.WaveNetEstimator(**daily, embedding_dimension=3, n_residue=8),
        "n_beats": lambda: ts.NBEATSEstimator(**common, freq="D", num_stacks=3, widths=[16]),
        "lstnet": lambda: ts.LSTNetEstimator(
            **common, **dropless, num_series=4, context_length=24, skip_size=3, ar_window=4,
            channels=6,
        ),
        "gpvar": lambda: ts.GPVAREstimator(**daily, **dropless, target_dim=4, rank=2),
        "deepvar": lambda: ts.DeepVAREstimator(**daily, **dropless, target_dim=4, rank=2),
        "deepstate": lambda: ts.DeepStateEstimator(
            **daily, **dropless, cardinality=[2], use_feat_static_cat=True, num_cells=16
        ),
        "simple_feedforward": lambda: ts.SimpleFeedForwardEstimator(**common),
        "mqcnn": lambda: ts.MQCNNEstimator(**daily, seed=1),
        "mqrnn": lambda: ts.MQRNNEstimator(**daily),
        "deep_factor": lambda: model.deep_factor.DeepFactorEstimator(**daily, cardinality=[2]),
        "deep_renewal": lambda: model.renewal.DeepRenewalProcessEstimator(
            **common, context_length=12, num_cells=8, num_layers=1
        ),
        "canonical_rnn": lambda: model.canonical.CanonicalRNNEstimator(
            **daily, context_length=12, num_cells=8
        ),
        "canonical_mlp": lambda: model.canonical._estimator.MLPForecasterEstimator(
            **daily, context_length=12, hidden_dim_sequence=[16, 8]
        ),
    }  # fmt: skip
    return makers[name]()


def _book(name: str) -> Values:
    """Train a model of the book "Dive into Deep Learning", whose arrays are those of mx.np."""
    from d2l import mxnet as d2l

    mx.npx.set_np()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    if name in ("lenet", "softmax_regression", "resnext"):
        size = 28 if name != "resnext" else 16
        pictures = mx.np.array(np.random.uniform(-1, 1, (8, 1, size, size)).astype("float32"))
        label = mx.np.array(np.arange(8) % 10)
        if name == "lenet":
            net = d2l.LeNet(lr=0.1).net
        elif name == "softmax_regression":
            net = d2l.SoftmaxRegression(num_outputs=10, lr=0.1).net
        else:
            net = gluon.nn.Sequential()
            net.add(d2l.ResNeXtBlock(16, 4, 1, True), gluon.nn.Dense(10))
        net.initialize(mx.init.Xavier(), force_reinit=True)
        return _train(net, loss_of, [(pictures, label)] * _STEPS)
    tokens = mx.np.array(np.random.randint(0, 30, (4, 7)))
    lengths = mx.np.array([7, 5, 3, 6])
    if name in ("rnn", "gru"):
        net = gluon.nn.Sequential()
        cell = d2l.RNN(16) if name == "rnn" else d2l.GRU(16, 1)
        net.add(gluon.nn.Embedding(30, 8), cell)
        net.initialize(mx.init.Xavier())
        return _train(net, lambda y, label: (y**2).mean(), [(tokens, tokens)] * _STEPS)
    if name == "seq2seq":
        encoder = d2l.Seq2SeqEncoder(30, 8, 16, 2)
        encoder.initialize(mx.init.Xavier())
        return _train(encoder, lambda y, label: (y**2).mean(), [(tokens, tokens)] * _STEPS)
    if name == "transformer":
        net = d2l.TransformerEncoder(30, 16, 24, 2, 2, 0.0)
        net.initialize(mx.init.Xavier())
        batch = tokens, lengths, tokens
        return _train(net, lambda y, label: (y**2).mean(), [batch] * _STEPS)
    net = d2l.BERTModel(30, 16, 24, 2, 2, 0.0, 64).encoder
    net.initialize(mx.init.Xavier())
    segments = mx.np.zeros_like(tokens)
    batch = tokens, segments, lengths, tokens  # as its pre-training calls the encoder
    return _train(net, lambda y, label: (y**2).mean(), [batch] * _STEPS)


def _translate(options: str) -> Values:
    """Train a translator of digits with sockeye's own command, as its integration tests do."""
    from unittest import mock

    import sockeye.train
    from sockeye.test_utils import TRAIN_PARAMS_COMMON, tmp_digits_dataset

    small = (
        "--num-layers 1 --num-embed 16 --transformer-model-size 16 --transformer-attention-heads 2 "
        "--transformer-feed-forward-num-hidden 32 --batch-size 8 --batch-type sentence "
        "--max-updates 6 --checkpoint-interval 3 --decode-and-evaluate 0 "
        "--initial-learning-rate 0.01 --embed-dropout 0 --transformer-dropout-attention 0 "
        "--transformer-dropout-act 0 --transformer-dropout-prepost 0"
    )
    with tmp_digits_dataset("digits", 40, 0, 9, 8, 9, 2, 0, 9) as data:
        files = {name: data[name] for name in ("train_source", "train_target", "dev_source")}
        model = f"{data['work_dir']}/model"
        common = TRAIN_PARAMS_COMMON.format(
            **files, dev_target=data["dev_target"], model=model, max_len=10, seed=13
        )
        with mock.patch.object(sys, "argv", f"train {common} {small} {options}".split()):
            sockeye.train.main()
        saved = mx.nd.load(f"{model}/params.best")
    return {f"weight {name}": value.asnumpy() for name, value in saved.items()}


def _infer(name: str) -> Values:
    """Infer parameters with MXFusion, by their most probable values."""
    import mxfusion as mf
    from mxfusion.components.distributions import Normal
    from mxfusion.components.distributions.gp.kernels import RBF
    from mxfusion.components.variables import PositiveTransformation
    from mxfusion.inference import MAP, GradBasedInference
    from mxfusion.modules.gp_modules import GPRegression, SparseGPRegression

    count = 24
    x = np.linspace(-1, 1, count)[:, None].astype("float64")
    y = np.sin(3 * x) + np.random.normal(0, 0.1, x.shape)
    model = mf.Model()
    model.noise = mf.Variable(transformation=PositiveTransformation(), initial_value=0.1)
    if name == "normal":
        model.mean = Normal.define_variable(
            mean=mx.nd.array([0.0], dtype="float64"), variance=mx.nd.array([9.0], dtype="float64"),
            shape=(1,), dtype="float64",
        )  # fmt: skip
        model.y = Normal.define_variable(
            mean=mf.components.functions.operators.broadcast_to(model.mean, y.shape),
            variance=mf.components.functions.operators.broadcast_to(model.noise, y.shape),
            shape=y.shape, dtype="float64",
        )  # fmt: skip
        given, data = [model.y], {"y": y}
    elif name == "regression":
        net = gluon.nn.HybridSequential(prefix="net_")
        net.add(gluon.nn.Dense(8, activation="tanh", in_units=1), gluon.nn.Dense(1, in_units=8))
        net.initialize(mx.init.Xavier())
        net.cast("float64")
        model.x = mf.Variable(shape=x.shape)
        model.net = mf.components.functions.MXFusionGluonFunction(net, num_outputs=1)
        model.y = Normal.define_variable(
            mean=model.net(model.x),
            variance=mf.components.functions.operators.broadcast_to(model.noise, y.shape),
            shape=y.shape, dtype="float64",
        )  # fmt: skip
        given, data = [model.x, model.y], {"x": x, "y": y}
    else:
        model.x = mf.Variable(shape=x.shape)
        kernel = RBF(input_dim=1, variance=1.0, lengthscale=0.5, dtype="float64")
        more = {"X": model.x, "kernel": kernel, "noise_var": model.noise, "shape": y.shape}
        if name == "gaussian_process":
            model.y = GPRegression.define_variable(**more, dtype="float64")
        else:
            model.points = mf.Variable(shape=(6, 1), initial_value=mx.nd.array(x[::4]))
            model.y = SparseGPRegression.define_variable(
                **more, inducing_inputs=model.points, dtype="float64"
            )
        given, data = [model.x, model.y], {"x": x, "y": y}
    inference = GradBasedInference(MAP(model=model, observed=given), dtype="float64")
    arrays = {key: mx.nd.array(value, dtype="float64") for key, value in data.items()}
    inference.initialize(**{key: value.shape for key, value in arrays.items()})
    inference.run(max_iter=20, learning_rate=0.05, verbose=False, **arrays)
    found = inference.params.param_dict.values()
    return {f"weight {n}": each.data().asnumpy() for n, each in enumerate(found)}


class _Choice(gluon.HybridBlock):  # type: ignore[misc]
    """A layer of a single-path net: one of several operations, another in every step."""

    def __init__(self, channels: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.chosen = 0
        with self.name_scope():
            self.options = gluon.nn.HybridSequential()
            for kernel in (1, 3, 5):
                self.options.add(gluon.nn.Conv2D(channels, kernel, padding=kernel // 2))
            self.norm = gluon.nn.BatchNorm()

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """The chosen operation's result."""
        return F.relu(self.norm(self.options[self.chosen](x)))


def _single_path(*, hybrid: bool) -> Values:
    net = gluon.nn.HybridSequential()
    layers = [_Choice(8) for _ in range(4)]
    net.add(*layers, gluon.nn.GlobalAvgPool2D(), gluon.nn.Dense(5))
    net.initialize(mx.init.Xavier())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    pictures = mx.nd.array(np.random.uniform(-1, 1, (6, 3, 12, 12)))
    label = mx.nd.array(np.arange(6) % 5)
    for each in layers:  # make every option's weights
        for each.chosen in range(3):
            net(pictures)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9})
    found: Values = {}
    for number in range(8):
        for each in layers:
            each.chosen = random.randrange(3)
        if hybrid:
            net.hybridize()  # traces it again
        with autograd.record():
            loss = loss_of(net(pictures), label)
        loss.backward()
        trainer.step(6, ignore_stale_grad=True)
        found[f"loss {number}"] = loss.asnumpy()
    return {**found, **_weights(net)}


def _cases() -> Iterator[tuple[str, Callable[..., Values]]]:
    for name in _SMALL:
        yield f"gluoncv2/{name}", functools.partial(_vision, name, 32)
    for name in _LARGE:
        yield f"gluoncv2/{name}", functools.partial(_vision, name, 224)
    for name in _GLUONTS:
        yield f"gluonts/{name}", lambda name=name: _forecast(name)  # type: ignore[misc]
    for name in _D2L:
        yield f"d2l/{name}", lambda name=name: _book(name)  # type: ignore[misc]
    for name, options in _SOCKEYE.items():
        yield f"sockeye/{name}", lambda options=options: _translate(options)  # type: ignore[misc]
    for name in _FUSION:
        yield f"mxfusion/{name}", lambda name=name: _infer(name)  # type: ignore[misc]
    yield "single_path/hybridized", lambda: _single_path(hybrid=True)
    yield "single_path/eager", lambda: _single_path(hybrid=False)


CASES = dict(_cases())

if __name__ == "__main__":
    if len(sys.argv) > 3:
        _shift(float(sys.argv[3]))
    np.savez(sys.argv[2], **run(sys.argv[1], *sys.argv[4:]))
