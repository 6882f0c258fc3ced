"""Figure 11 of the paper: how the tensors of WResNet-152-10 are partitioned over 8 workers.

    python scripts/figure11.py --output docs/results     # figure11.svg, figure11.json
    python scripts/figure11.py --smoke                   # the reduced model, in seconds

For every convolution of the residual blocks the drawing shows its weights (top) and the
activations it reads (bottom), as the paper does: tiles, with a colour for each worker. Output and
input channels, or batch and channels, run downwards and to the right. Consecutive blocks that are
alike are drawn once, with their number.

The script also reports which observations of section 7.4 hold for this plan, with the evidence.
scripts/_fetches.py counts the bytes fetched of weights and activations, which must agree with the
plan's own bytes. Hardware: any, no GPU. Time: half a minute.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _blocks import Block, Convolution, Observation, blocks_of, observations, runs_of, stages_of
from _common import context, problem
from _figures import draw_again, parser_of, pyplot_of, save, write_and_draw

from tofu.planner.search import plan_graph
from tofu.plans import Plan, SearchOptions, TensorPlan
from tofu.plans.plan import format_bytes
from tofu.plans.render.html import worker_colour
from tofu.plans.render.picture import draw

MODEL, BATCH, WORKERS = "wresnet-152-10", 8, 8


# --- drawing --------------------------------------------------------------------------------

TIMES = "\N{MULTIPLICATION SIGN}"
PITCH = 1.5  # from one convolution to the next; a tensor's square has sides of 1
Box = tuple[float, float, float, float]  # left, bottom, width, height


@dataclasses.dataclass(frozen=True)
class _Tiles:
    """The boxes in each worker's colour, and the tiles' edges."""

    of_worker: list[list[Box]]
    edges: list[Box]


def render(document: dict[str, Any], path: Path) -> None:
    """Draw the raw data into an SVG file."""
    pyplot_of("figure11")
    save(picture(document), path, bbox_inches="tight")


def picture(document: dict[str, Any]) -> Any:
    """The drawing, as a figure of matplotlib."""
    from matplotlib import pyplot

    workers, parts = document["workers"], document["parts"]
    columns = sum(len(run["convolutions"]) for group in document["groups"] for run in group)
    figure, axes = pyplot.subplots(figsize=(0.8 * columns + 1, 4.2))
    axes.set_axis_off()
    axes.set_aspect("equal")
    tiles = _Tiles([[] for _ in range(workers)], [])
    x = 0.0
    for stage, group in enumerate(document["groups"], 1):
        x += 1.0
        for number, run in enumerate(group):
            x += 0.5 if number else 0.0
            name = f"group {stage}, " + ("blocks" if number else "first block")
            axes.text(x, 3.4, f"{name}  {TIMES}{run['times']}", fontsize=8)
            for convolution in run["convolutions"]:
                for y, name in ((1.9, "weight"), (0.0, "activation")):
                    _add_tiles(tiles, x, y, convolution[name], parts)
                _label(axes, x, convolution)
                x += PITCH
    axes.text(0.7, 2.4, "weights\n(out, in\nchannels)", ha="right", va="center", fontsize=8)
    axes.text(0.7, 0.5, "activations\n(batch,\nchannels)", ha="right", va="center", fontsize=8)
    for worker in range(workers):
        place = 1.0 + worker * 2.0
        tiles.of_worker[worker].append((place, 4.1, 0.3, 0.3))
        axes.text(place + 0.42, 4.25, f"worker {worker}", va="center", fontsize=7)
    for worker, boxes in enumerate(tiles.of_worker):
        _draw_boxes(axes, boxes, color=worker_colour(worker, workers), linewidth=0)
    _draw_boxes(axes, tiles.edges, fill=False, edgecolor="#333", linewidth=0.5)
    axes.set_xlim(-1.5, x)
    axes.set_ylim(-1.0, 4.6)
    return figure


def _add_tiles(
    tiles: _Tiles, x: float, y: float, record: dict[str, Any], parts: Sequence[int]
) -> None:
    """Add a tensor's tiles, whose square has its lower left corner at (x, y)."""
    tensor = TensorPlan("", 0, tuple(record["shape"]), 0, tuple(record["cuts"]))
    pieces = draw(tensor, parts, axes=(0, 1))
    width, height = 1 / (pieces.columns * pieces.planes), 1 / pieces.rows
    for cell in pieces.cells:
        left, top = x + cell.column * width, y + 1 - cell.row * height
        stripe = height / len(cell.workers)
        for i, worker in enumerate(cell.workers):
            tiles.of_worker[worker].append((left, top - (i + 1) * stripe, width, stripe))
        tiles.edges.append((left, top - height, width, height))


def _draw_boxes(axes: Any, boxes: Sequence[Box], **style: Any) -> None:
    """Draw boxes of one style as one path."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    outlines = [
        Outline([(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)], closed=True)
        for x, y, w, h in boxes
    ]
    axes.add_patch(PathPatch(Outline.make_compound_path(*outlines), **style))


def _label(axes: Any, x: float, convolution: dict[str, Any]) -> None:
    def size(record: dict[str, Any]) -> str:
        """Two lines, as the largest convolutions have long sizes."""
        shape = [str(extent) for extent in record["shape"]]
        return f"{TIMES.join(shape[:2])}\n{TIMES.join(shape[2:])}"

    split = " ".join(cut or "-" for cut in convolution["split"])
    for y, text in (
        (3.1, convolution["layer"]),
        (1.5, size(convolution["weight"])),
        (-0.38, size(convolution["activation"])),
        (-0.82, f"split {split}"),
    ):
        axes.text(x + 0.5, y, text, ha="center", va="center", fontsize=5)


# --- the script -----------------------------------------------------------------------------


def to_json(blocks: Sequence[Block], plan: Plan, seen: Sequence[Observation]) -> dict[str, Any]:
    """Everything that is drawn or reported."""
    return {
        "figure": 11,
        "context": context(),
        "model": plan.model,
        "batch": BATCH,
        "workers": plan.workers,
        "parts": plan.parts,
        "total_bytes": plan.total_bytes,
        "search_seconds": plan.search_seconds,
        "observations": [dataclasses.asdict(observation) for observation in seen],
        "groups": [
            [
                {"times": times, "convolutions": [_record(conv) for conv in block]}
                for block, times in runs_of(stage)
            ]
            for stage in stages_of(blocks)
        ],
    }


def _record(convolution: Convolution) -> dict[str, Any]:
    return {
        "layer": convolution.layer,
        "weight": {"shape": convolution.weight.shape, "cuts": convolution.weight.cuts},
        "activation": {"shape": convolution.activation.shape, "cuts": convolution.activation.cuts},
        "output_cuts": convolution.output.cuts,
        "split": convolution.split,
        "backward_split": convolution.backward_split,
        "weight_bytes_fetched": convolution.weight_bytes,
        "activation_bytes_fetched": convolution.activation_bytes,
    }


def to_text(plan: Plan, seen: Sequence[Observation]) -> str:
    """The observations, for a terminal."""
    lines = [
        f"{plan.model}, batch {BATCH}, {plan.workers} workers: "
        f"{format_bytes(plan.total_bytes)} communicated per training step",
        "",
        "Observations of section 7.4:",
    ]
    for number, observation in enumerate(seen, 1):
        verdict = "holds" if observation.holds else "does not hold"
        lines += ["", f"{number}. {observation.text} -> {verdict}"]
        lines += [f"   {line}" for line in observation.evidence]
    return "\n".join(lines)


def main() -> None:
    """Plan, draw and report."""
    parser = parser_of(__doc__, smoke="the reduced model")
    parser.add_argument("--search", default="tofu", help="search mode (docs/search.md)")
    args = parser.parse_args()
    if draw_again(args, render):
        return
    model = problem(MODEL, batch_size=BATCH, workers=WORKERS, reduced=args.smoke)
    plan = plan_graph(model, SearchOptions(mode=args.search))
    blocks = blocks_of(model, plan)
    seen = observations(blocks)
    print(to_text(plan, seen))
    write_and_draw(args.output, "figure11", to_json(blocks, plan, seen), render)


if __name__ == "__main__":
    main()
