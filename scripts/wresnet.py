"""Train a wide residual network, WResNet-depth-width (paper section 7.1), and measure it.

    python scripts/wresnet.py --depth 50 --width 4 --batch-size 128 --workers 8
    python scripts/wresnet.py --model wresnet-50-4 --reduced --workers 2
    MXNET_GRAPH_PASS=tofu TOFU_WORKERS=8 python scripts/wresnet.py --depth 152 --width 10
    python scripts/wresnet.py --depth 152 --width 10 --system swap --batch-size auto

Each worker is one GPU, or one CPU context if there are none. The images are synthetic. With
--system the step is simulated (docs/simulation.md); --devices K lets placement run. The last line
printed is JSON (docs/models.md).
"""

from __future__ import annotations

import argparse

import _training

from tofu.models import Model, make_wresnet

SIZES = ("depth", "width", "image", "classes")


def make_model(args: argparse.Namespace) -> Model:
    """The model of the given sizes."""
    return make_wresnet(
        50 if args.depth is None else args.depth,
        4 if args.width is None else args.width,
        image=224 if args.image is None else args.image,
        classes=1000 if args.classes is None else args.classes,
    )


def main() -> None:
    """Train and print."""
    parser = _training.Parser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--depth", type=int, help="number of layers: 50, 101 or 152 (50)")
    parser.add_argument("--width", type=int, help="factor by which to widen all layers (4)")
    parser.add_argument("--image", type=int, metavar="PIXELS", help="image height and width (224)")
    parser.add_argument("--classes", type=int, help="number of classes (1000)")
    _training.add_arguments(parser)
    _training.run(parser, "wresnet", make_model, SIZES)


if __name__ == "__main__":
    main()
