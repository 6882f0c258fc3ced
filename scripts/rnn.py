"""Train a stack of LSTM layers, RNN-layers-hidden (paper section 7.1), and measure it.

    python scripts/rnn.py --layers 6 --hidden 4096 --batch-size 512 --workers 8
    python scripts/rnn.py --model rnn-6-4k --reduced --workers 2
    MXNET_GRAPH_PASS=tofu TOFU_WORKERS=8 python scripts/rnn.py --layers 10 --hidden 8192
    python scripts/rnn.py --layers 10 --hidden 8192 --system swap --batch-size auto

Each worker is one GPU, or one CPU context if there are none. The sequences are synthetic. With
--system the step is simulated (docs/simulation.md); --devices K lets placement run. The last line
printed is JSON (docs/models.md).
"""

from __future__ import annotations

import argparse

import _training

from tofu.models import Model, make_rnn

SIZES = ("layers", "hidden", "steps")


def make_model(args: argparse.Namespace) -> Model:
    """The model of the given sizes."""
    return make_rnn(
        6 if args.layers is None else args.layers,
        4096 if args.hidden is None else args.hidden,
        steps=20 if args.steps is None else args.steps,
    )


def main() -> None:
    """Train and print."""
    parser = _training.Parser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, help="number of LSTM layers (6)")
    parser.add_argument("--hidden", type=int, metavar="UNITS", help="units of each layer (4096)")
    parser.add_argument("--steps", type=int, help="length of the sequences (20)")
    _training.add_arguments(parser)
    _training.run(parser, "rnn", make_model, SIZES)


if __name__ == "__main__":
    main()
