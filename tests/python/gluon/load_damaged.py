"""Loads damaged checkpoints, and prints the outcome of each; tofu is on if the variables say so.

python load_damaged.py FOLDER whole     # writes whole.params and whole.states there
python load_damaged.py FOLDER load      # loads the other files there, by their names
"""

import hashlib
import pathlib
import resource
import sys

import mxnet as mx
from mxnet import autograd, gluon

MOST = 2**32  # bytes: a damaged shape asks MXNet for more than a machine has
FOLDER, FIRST = pathlib.Path(sys.argv[1]), sys.argv[2:]


class Training:
    def __init__(self):
        mx.random.seed(1)
        self.net = gluon.nn.HybridSequential(prefix="net_")
        with self.net.name_scope():
            self.net.add(gluon.nn.Dense(4, in_units=6, activation="tanh"))
            self.net.add(gluon.nn.Dense(2, in_units=4))
        self.net.initialize(mx.init.Xavier())
        self.net.cast("float64")
        self.net.hybridize()
        self.trainer = gluon.Trainer(self.net.collect_params(), "adam")
        self.files = {
            "params": (self.net.save_parameters, self.net.load_parameters),
            "states": (self.trainer.save_states, self.trainer.load_states),
        }

    def step(self):
        with autograd.record():
            loss = (self.net(mx.nd.ones((4, 6), dtype="float64")) ** 2).sum()
        loss.backward()
        self.trainer.step(1)
        return loss.asscalar()

    def load(self, path):
        """The values of a file after loading, or the error's type."""
        save, load = self.files[path.suffix[1:]]
        try:
            load(str(path))
        except Exception as error:
            return type(error).__name__
        save(str(FOLDER / "again"))
        return hashlib.sha256((FOLDER / "again").read_bytes()).hexdigest()

    def restore(self):
        for name, (_, load) in self.files.items():
            load(str(FOLDER / f"whole.{name}"))


def main():
    resource.setrlimit(resource.RLIMIT_AS, (MOST, MOST))
    training = Training()
    first = training.step()
    if not FIRST:
        for name, (save, _) in training.files.items():
            save(str(FOLDER / f"whole.{name}"))
        return
    training.restore()
    expected = training.step()
    assert expected != first
    for path in sorted(FOLDER.glob("[0-9]*"))[int(FIRST[0]) :]:
        told = training.load(path)
        training.restore()
        loss = training.step()
        assert abs(loss - expected) < 1e-12 * expected, (path, loss, expected)
        print(path.name, told, flush=True)


main()
