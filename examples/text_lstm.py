"""Train an unrolled LSTM to predict the next character of a text, with MXNet Gluon.

The text is scikit-learn's description of its data sets. An ordinary Gluon script::

    python examples/text_lstm.py --epochs 5
"""

import argparse
import json
import math
import time

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn
from sklearn import datasets


class LanguageModel(nn.HybridBlock):
    """Embedding, a stack of LSTM cells unrolled over `length` characters, decoder."""

    def __init__(self, vocabulary, width, layers, length):
        super().__init__()
        self.length = length
        with self.name_scope():
            self.embedding = nn.Embedding(vocabulary, width)
            self.cells = rnn.HybridSequentialRNNCell()
            for _ in range(layers):
                self.cells.add(rnn.LSTMCell(width, input_size=width))
            self.decoder = nn.Dense(vocabulary, flatten=False)

    def hybrid_forward(self, F, characters, state):
        """Score the next character after each of `characters`, (batch, length).

        Returns the scores, (batch, length, vocabulary), and the state for the next call.
        """
        outputs, state = self.cells.unroll(
            self.length,
            self.embedding(characters),
            begin_state=state,
            layout="NTC",
            merge_outputs=True,
        )
        return self.decoder(outputs), state


def load_text(batch_size):
    """The text as numbers, one row per sequence of a batch, and the size of its alphabet."""
    loaders = (
        datasets.load_digits,
        datasets.load_iris,
        datasets.load_wine,
        datasets.load_breast_cancer,
        datasets.load_diabetes,
        datasets.load_linnerud,
    )
    text = "\n".join(load().DESCR for load in loaders)
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    numbers = np.array([alphabet[character] for character in text], dtype="float32")
    length = len(numbers) // batch_size
    # A multiple of eight suits the decoder; numbers beyond the alphabet never occur.
    vocabulary = math.ceil(len(alphabet) / 8) * 8
    return numbers[: length * batch_size].reshape(batch_size, length), vocabulary


def windows(rows, length):
    """Yield `length` characters of every row and the characters that follow each of them."""
    for start in range(0, rows.shape[1] - length, length):
        yield rows[:, start : start + length], rows[:, start + 1 : start + length + 1]


def train_epoch(net, rows, loss_function, trainer, ctx):
    """Read the text once. Returns the mean loss and every step's loss, per character."""
    state = net.cells.begin_state(batch_size=len(rows), ctx=ctx, dtype=net.decoder.weight.dtype)
    steps = []
    for characters, following in windows(rows, net.length):
        characters = mx.nd.array(characters, ctx=ctx)
        following = mx.nd.array(following, ctx=ctx)
        with autograd.record():
            scores, state = net(characters, state)
            losses = loss_function(scores, following)
        losses.backward()
        state = [part.detach() for part in state]
        trainer.step(len(rows))
        steps.append(float(losses.mean().asscalar()))
    return sum(steps) / len(steps), steps


def predict(net, rows, loss_function, ctx):
    """The mean loss on the first window, in predict mode."""
    state = net.cells.begin_state(batch_size=len(rows), ctx=ctx, dtype=net.decoder.weight.dtype)
    characters, following = (mx.nd.array(part, ctx=ctx) for part in next(windows(rows, net.length)))
    scores, _ = net(characters, state)
    return float(loss_function(scores, following).mean().asscalar())


def main():
    """Train, print one line per epoch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=16, help="characters to unroll over")
    parser.add_argument("--width", type=int, default=64, help="size of embedding and LSTM")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="adam")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--save", metavar="FILE", help="where to save the parameters")
    parser.add_argument("--metrics", metavar="FILE", help="where to write the losses, as JSON")
    args = parser.parse_args()

    mx.random.seed(7)
    ctx = mx.gpu() if mx.context.num_gpus() else mx.cpu()
    rows, vocabulary = load_text(args.batch_size)
    net = LanguageModel(vocabulary, args.width, args.layers, args.length)
    net.initialize(mx.init.Xavier(), ctx=ctx)
    net.cast(args.dtype)
    net.hybridize()
    settings = {
        "sgd": {"learning_rate": 1.0, "momentum": 0.9},
        "adam": {"learning_rate": 0.005},
    }
    trainer = gluon.Trainer(net.collect_params(), args.optimizer, settings[args.optimizer])
    loss_function = gluon.loss.SoftmaxCrossEntropyLoss()

    metrics = {"loss": [], "step_loss": [], "seconds": []}
    for epoch in range(1, args.epochs + 1):
        start = time.perf_counter()
        loss, steps = train_epoch(net, rows, loss_function, trainer, ctx)
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}: loss {loss:.6f}, {seconds:.1f} s", flush=True)
        metrics["loss"].append(loss)
        metrics["step_loss"] += steps
        metrics["seconds"].append(seconds)
    metrics["predicted_loss"] = predict(net, rows, loss_function, ctx)
    print(f"first {net.length} characters after training: loss {metrics['predicted_loss']:.4f}")

    if args.save:
        net.save_parameters(args.save)
    if args.metrics:
        with open(args.metrics, "w", encoding="utf-8") as file:
            json.dump(metrics, file)


if __name__ == "__main__":
    main()
