"""Scripts of the Module API, to run with and without tofu."""

import random as pythons

import mxnet as mx
import numpy as np

CLASSES = 7
_OF_MODULE = ("label_names", "context", "fixed_param_names", "state_names", "group2ctxs")
ALL = []


def kind(script):
    """Add a script to those that every test run compares."""
    ALL.append(script.__name__)
    return script


def rows(count=26, width=10):
    random = np.random.RandomState(1)
    return (
        random.uniform(-1, 1, (count, width)).astype("float32"),
        random.randint(0, CLASSES, (count,)).astype("float32"),
    )


def batches(batch_size=8, count=26, width=10):
    return mx.io.NDArrayIter(*rows(count, width), batch_size=batch_size, shuffle=False)


def mlp(norm=True, **options):
    """A net of two layers with a softmax at its end."""
    net = mx.sym.Variable("data")
    net = mx.sym.FullyConnected(net, num_hidden=12, name="fc1")
    if norm:
        net = mx.sym.BatchNorm(net, name="bn", fix_gamma=False)
    net = mx.sym.Activation(net, act_type="relu", name="relu")
    net = mx.sym.FullyConnected(net, num_hidden=CLASSES, name="fc2", **options)
    return mx.sym.SoftmaxOutput(net, name="softmax")


def bound(symbol, make=mx.mod.Module, batch=8, width=10, **options):
    """A Module with parameters that do not depend on earlier runs."""
    mx.random.seed(7)
    np.random.seed(7)
    of_module = {name: options.pop(name) for name in _OF_MODULE if name in options}
    module = make(symbol, **of_module)
    label_shapes = [("softmax_label", (batch,))] if module.label_names else None
    module.bind([("data", (batch, width))], label_shapes, **options)
    module.init_params(mx.init.Xavier())
    return module


def values(module):
    mx.nd.waitall()  # plain MXNet reads running statistics before they are written
    return [{k: v.asnumpy() for k, v in sorted(each.items())} for each in module.get_params()]


def started(module, optimizer="sgd", **options):
    options = options or {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}
    module.init_optimizer(optimizer=optimizer, optimizer_params=options)
    return module


def steps(module, epochs=1, batch_size=8, count=26):
    found = []
    for _ in range(epochs):
        for batch in batches(batch_size, count):
            module.forward(batch, is_train=True)
            found.append(module.get_outputs()[0].asnumpy())
            module.backward()
            module.update()
            mx.nd.waitall()
    return found


@kind
def fit(epochs=3, optimizer="sgd", norm=True, **options):
    mx.random.seed(7)
    np.random.seed(7)
    seen = []
    module = mx.mod.Module(mlp(norm))
    module.fit(
        batches(),
        eval_data=batches(),
        eval_metric=["acc", "ce"],
        optimizer=optimizer,
        optimizer_params=options or {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01},
        initializer=mx.init.Xavier(),
        num_epoch=epochs,
        batch_end_callback=lambda each: seen.append(each.eval_metric.get()[1]),
        eval_end_callback=lambda each: seen.append(each.eval_metric.get()[1]),
    )
    predicted = module.predict(batches()).asnumpy()
    return seen, module.score(batches(), "acc")[0][1], predicted, values(module)


@kind
def adam():
    return fit(2, "adam", norm=False, learning_rate=0.01)


@kind
def by_hand():
    module = started(bound(mlp()))
    return steps(module, 2), values(module)


@kind
def gradients():
    module = started(bound(mlp(), inputs_need_grad=True))
    found = []
    for batch in batches():
        module.forward_backward(batch)
        found.append([g[0].asnumpy() for g in module._exec_group.grad_arrays])
        found.append(module.get_input_grads()[0].asnumpy())
        module.update()
    return found, values(module)


@kind
def gan():
    """Gradients of one batch are added to those of the next, as in the example of DCGAN."""
    module = started(bound(mlp()))
    batch, other = list(batches())[:2]
    for _ in range(3):
        module.forward_backward(batch)
        kept = [[g.copyto(g.context) for g in grads] for grads in module._exec_group.grad_arrays]
        module.forward_backward(other)
        for new, old in zip(module._exec_group.grad_arrays, kept):
            for gradient, earlier in zip(new, old):
                gradient += earlier
        module.update()
    return values(module)


@kind
def adding():
    module = started(bound(mlp(), grad_req="add"))
    for _ in range(2):
        for batch in batches():
            module.forward_backward(batch)
        module.update()
        for grads in module._exec_group.grad_arrays:
            grads[0][:] = 0
    return values(module)


@kind
def updated_twice():
    module = started(bound(mlp()))
    found = []
    for batch in batches():
        module.forward_backward(batch)
        module.update()
        module.update()
        found.append(values(module))
    return found


@kind
def no_loss():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=12, name="fc1")
    net = mx.sym.Group([mx.sym.tanh(net), mx.sym.relu(net)])
    module = started(bound(net, label_names=None, inputs_need_grad=True))
    found = []
    for number in range(3):
        inputs = mx.nd.array(rows(8)[0])
        module.forward(mx.io.DataBatch([inputs], None), is_train=True)
        heads = [mx.nd.ones((8, 12)) * (number + 1), mx.nd.ones((8, 12)) * 0.5]
        module.backward(heads)
        found += [each.asnumpy() for each in module.get_outputs()]
        found += [module.get_input_grads()[0].asnumpy()]
        module.update()
    return found, values(module)


@kind
def other_batches():
    module = started(bound(mlp()))
    found = steps(module)
    found += steps(module, batch_size=5, count=20)
    for batch in batches(13):
        module.forward(batch, is_train=False)
        found.append(module.get_outputs()[0].asnumpy())
    found += steps(module)
    return found, values(module)


@kind
def fixed():
    module = started(bound(mlp(), fixed_param_names=["fc1_weight", "bn_gamma"]))
    return steps(module, 2), values(module)


@kind
def multipliers():
    weight = mx.sym.Variable("fc2_weight", lr_mult=0.1, wd_mult=3.0)
    module = bound(mlp(weight=weight))
    schedule = mx.lr_scheduler.FactorScheduler(3, 0.5)
    started(module, learning_rate=0.1, momentum=0.9, wd=0.01, lr_scheduler=schedule)
    return steps(module, 2), values(module)


@kind
def set_again():
    module = started(bound(mlp()))
    before = [{k: v.copy() for k, v in each.items()} for each in module.get_params()]
    found = steps(module)
    module.set_params(*before)
    found += steps(module)
    module.init_params(mx.init.One(), force_init=True)
    found += steps(module)
    module.set_params({"fc1_bias": mx.nd.ones((12,))}, {}, allow_missing=True)
    return found + steps(module), values(module)


@kind
def bound_again():
    module = started(bound(mlp()))
    found = steps(module)
    module.get_params()
    module.bind([("data", (5, 10))], [("softmax_label", (5,))], force_rebind=True)
    return found + steps(module, batch_size=5, count=20), values(module)


@kind
def shared():
    """A Module for prediction has the parameters of the one that trains."""
    module = started(bound(mlp()))
    other = mx.mod.Module(mlp())
    found = []
    other.bind(
        [("data", (4, 10))], [("softmax_label", (4,))], for_training=False, shared_module=module
    )
    for _ in range(2):
        found += steps(module)
        other.forward(next(iter(batches(4))))
        found.append(other.get_outputs()[0].asnumpy())
    return found, values(module)


def saved(folder):
    prefix = str(folder / "net")
    module = started(bound(mlp()))
    found = steps(module)
    module.save_checkpoint(prefix, 1, save_optimizer_states=True)
    found += steps(module)
    other = mx.mod.Module.load(prefix, 1, load_optimizer_states=True)
    other.bind([("data", (8, 10))], [("softmax_label", (8,))])
    started(other)
    found += steps(other)
    module.load_optimizer_states(prefix + "-0001.states")
    found += steps(module)
    return found, values(other), values(module)


def loaded(folder):
    """Train on from the files of ``saved``."""
    module = mx.mod.Module.load(str(folder / "net"), 1, load_optimizer_states=True)
    module.bind([("data", (8, 10))], [("softmax_label", (8,))])
    return steps(started(module)), values(module)


def watched():
    module = started(bound(mlp()))
    monitor = mx.mon.Monitor(2, stat_func=lambda x: mx.nd.norm(x), pattern=".*", sort=True)
    module.install_monitor(monitor)
    found, names = [], []
    for batch in batches():
        mx.nd.waitall()
        monitor.tic()
        module.forward_backward(batch)
        module.update()
        for number, name, value in monitor.toc():
            if name != "softmax_backward_output1":  # of the label, which MXNet never writes
                names.append((number, name))
                found.append(float(value))
    return found, values(module), names


def sym_gen(length):
    data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
    embedded = mx.sym.Embedding(data, input_dim=20, output_dim=8, name="embed")
    stack = mx.rnn.SequentialRNNCell()
    stack.add(mx.rnn.LSTMCell(num_hidden=12, prefix="lstm_"))
    outputs, _ = stack.unroll(length, inputs=embedded, merge_outputs=True)
    outputs = mx.sym.Reshape(outputs, shape=(-1, 12))
    net = mx.sym.FullyConnected(outputs, num_hidden=20, name="pred")
    label = mx.sym.Reshape(label, shape=(-1,))
    return mx.sym.SoftmaxOutput(net, label, name="softmax"), ("data",), ("softmax_label",)


@kind
def buckets():
    random = np.random.RandomState(3)
    sentences = [list(random.randint(1, 20, random.choice([4, 7]))) for _ in range(40)]
    pythons.seed(3)
    np.random.seed(3)
    mx.random.seed(3)
    train = mx.rnn.BucketSentenceIter(sentences, 4, buckets=[4, 7], invalid_label=0)
    module = mx.mod.BucketingModule(sym_gen, default_bucket_key=train.default_bucket_key)
    seen = []
    module.fit(
        train,
        eval_metric=mx.metric.Perplexity(0),
        optimizer="sgd",
        optimizer_params={"learning_rate": 0.1, "momentum": 0.9},
        initializer=mx.init.Xavier(),
        num_epoch=2,
        batch_end_callback=lambda each: seen.append(each.eval_metric.get()[1]),
    )
    return seen, values(module)


@kind
def convolutions():
    net = mx.sym.Variable("data")
    net = mx.sym.Convolution(net, num_filter=6, kernel=(3, 3), pad=(1, 1), name="conv")
    net = mx.sym.BatchNorm(net, fix_gamma=True, name="bn")
    net = mx.sym.Pooling(mx.sym.relu(net), kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=CLASSES, name="fc")
    mx.random.seed(7)
    np.random.seed(7)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    inputs = np.random.RandomState(1).uniform(-1, 1, (16, 3, 8, 8))
    train = mx.io.NDArrayIter(inputs, rows(16)[1], batch_size=4)
    module.fit(
        train, num_epoch=2, initializer=mx.init.Xavier(), optimizer_params={"learning_rate": 0.1}
    )
    return values(module), module.predict(train).asnumpy()


@kind
def sequential():
    first = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=12, name="fc1")
    second = mx.sym.FullyConnected(mx.sym.Variable("fc1_output"), num_hidden=CLASSES, name="fc2")
    second = mx.sym.SoftmaxOutput(second, name="softmax")
    mx.random.seed(7)
    np.random.seed(7)
    module = mx.mod.SequentialModule()
    module.add(mx.mod.Module(first, label_names=[])).add(
        mx.mod.Module(second, data_names=["fc1_output"]), take_labels=True, auto_wiring=True
    )
    module.fit(
        batches(),
        num_epoch=2,
        initializer=mx.init.Xavier(),
        optimizer_params={"learning_rate": 0.1},
    )
    return values(module)


@kind
def states():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=12, name="fc1")
    net = mx.sym.broadcast_add(net, mx.sym.Variable("state", shape=(1, 12)))
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    module = started(bound(net, state_names=["state"]))
    found = steps(module)
    module.set_states(value=1)
    found += steps(module)
    found.append(module.get_states(merge_multi_context=False)[0][0].asnumpy())
    return found, values(module)


@kind
def attack():
    """Gradients of the inputs of a prediction, as attacks on networks need them."""
    module = started(bound(mlp(norm=False), inputs_need_grad=True))
    found = steps(module)
    for batch in batches():
        module.forward(batch, is_train=False)
        module.backward()
        found.append(module.get_input_grads()[0].asnumpy())
    return found, values(module)


@kind
def regression():
    """A label of one dimension goes with outputs of one column."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=12, name="fc1")
    net = mx.sym.FullyConnected(mx.sym.tanh(net), num_hidden=1, name="fc2")
    net = mx.sym.LinearRegressionOutput(net, mx.sym.Variable("softmax_label"), name="softmax")
    module = started(bound(net), "nag", learning_rate=0.01, momentum=0.9)
    return steps(module, 2), values(module)


class Clipped(mx.mod.Module):
    """A Module that clips its gradients, and halves its weights once."""

    halved = False

    def update(self):
        for (gradient,) in self._exec_group.grad_arrays:
            gradient[:] = mx.nd.clip(gradient, -0.01, 0.01)
        super().update()
        if not self.halved:
            for (weight,) in self._exec_group.param_arrays:
                weight[:] *= 0.5
            self.halved = True


@kind
def by_custom_update():
    module = started(bound(mlp(norm=False), Clipped))
    return steps(module, 2), values(module)


def large_softmax(classes):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="embedding")
    net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.FullyConnected(net, num_hidden=classes, name="classes", no_bias=True)
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    module = started(bound(net), learning_rate=1.0, momentum=0.9)
    random = np.random.RandomState(1)
    inputs, labels = random.uniform(-1, 1, (16, 10)), random.randint(0, classes, 16)
    metric = mx.metric.create("ce")
    for _ in range(2):
        for batch in mx.io.NDArrayIter(inputs, labels.astype("float32"), 8):
            module.forward_backward(batch)
            module.update_metric(metric, batch.label)
            module.update()
    return metric.get()[1], values(module)
