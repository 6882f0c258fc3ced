"""The residual blocks in a plan of WResNet, and the observations of the paper's section 7.4."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any, Optional

from _fetches import Counter, Fetch

from tofu.plans import Plan, Problem, TensorPlan
from tofu.plans.plan import format_bytes

__all__ = [
    "Block",
    "Convolution",
    "Observation",
    "blocks_of",
    "observations",
    "runs_of",
    "stages_of",
]

_CONVOLUTION = re.compile(r"^(?P<block>.*bottleneck\d+)_(?P<layer>conv\d+)_fwd$")


@dataclasses.dataclass(frozen=True)
class Convolution:
    """A convolution of a residual block.

    Attributes:
        layer: its name within the block.
        weight, activation, output: its tensors.
        split: the index variable that each step splits, forward.
        backward_split: the same for its backward operator.
        weight_bytes: bytes fetched of weights and their gradients, forward and backward.
        activation_bytes: the same for activations.
    """

    layer: str
    weight: TensorPlan
    activation: TensorPlan
    output: TensorPlan
    split: tuple[Optional[str], ...]
    backward_split: tuple[Optional[str], ...]
    weight_bytes: int
    activation_bytes: int

    @property
    def look(self) -> tuple[Any, ...]:
        """The properties that two convolutions share if they are partitioned alike."""
        return (
            self.layer,
            self.weight.shape,
            self.weight.cuts,
            self.activation.cuts,
            self.output.cuts,
            self.split,
            self.backward_split,
        )

    @property
    def way(self) -> tuple[Any, ...]:
        """The way it is partitioned, regardless of its shape."""
        return self.weight.cuts, self.activation.cuts, self.output.cuts, self.split


Block = tuple[Convolution, ...]


@dataclasses.dataclass(frozen=True)
class Observation:
    """A sentence of section 7.4, whether it holds, and the evidence."""

    text: str
    holds: bool
    evidence: tuple[str, ...]


# --- reading the plan ------------------------------------------------------------------------


def blocks_of(problem: Problem, plan: Plan) -> list[Block]:
    """The residual blocks, in the order of the network."""
    counter = Counter(problem, plan)
    tensors = {(tensor.node, tensor.output): tensor for tensor in plan.tensors}
    operators = {operator.node: operator for operator in plan.operators}
    numbers = {node["name"]: i for i, node in enumerate(counter.nodes)}
    blocks: dict[str, list[Convolution]] = {}
    for number, node in enumerate(counter.nodes):
        match = _CONVOLUTION.match(node["name"])
        if match is None or node["op"] != "Convolution":
            continue
        backward = numbers[f"{node['name']}_backward"]
        fetched = [*counter.fetches(number), *counter.fetches(backward)]
        counted = sum(operators[counter.nodes[i]["name"]].bytes for i in (number, backward))
        if sum(fetch.bytes for fetch in fetched) != counted:
            raise ValueError(f"{node['name']}: the plan counts {counted} bytes, _fetches.py others")
        sources = [counter.nodes[i]["name"] for i, *_ in node["inputs"]]
        weight = tensors[sources[1], 0]
        on_weight = sum(f.bytes for f in fetched if _is_weight(f, tensors, weight))
        convolution = Convolution(
            layer=match["layer"],
            weight=weight,
            activation=tensors[sources[0], node["inputs"][0][1]],
            output=tensors[node["name"], 0],
            split=operators[node["name"]].cuts,
            backward_split=operators[counter.nodes[backward]["name"]].cuts,
            weight_bytes=on_weight,
            activation_bytes=counted - on_weight,
        )
        blocks.setdefault(match["block"], []).append(convolution)
    return [tuple(sorted(each, key=lambda conv: conv.layer)) for each in blocks.values()]


def _is_weight(
    fetch: Fetch, tensors: dict[tuple[str, int], TensorPlan], weight: TensorPlan
) -> bool:
    """Whether a fetch is of the weights or of their gradient."""
    name, _, output = fetch.tensor.partition("[")
    tensor = tensors[name, int(output.rstrip("]")) if output else 0]
    return tensor.name == weight.name or (fetch.is_output and tensor.shape == weight.shape)


def stages_of(blocks: Iterable[Block]) -> list[list[Block]]:
    """The groups of blocks; the weights of a group have the same number of channels."""
    stages: dict[int, list[Block]] = {}
    for block in blocks:
        stages.setdefault(block[0].weight.shape[0], []).append(block)
    return list(stages.values())


def runs_of(blocks: Iterable[Block]) -> list[tuple[Block, int]]:
    """Runs of consecutive blocks that are alike: the block once, with their number."""
    runs: list[tuple[Block, int]] = []
    for block in blocks:
        if runs and _look(runs[-1][0]) == _look(block):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return runs


def _look(block: Block) -> list[tuple[Any, ...]]:
    return [convolution.look for convolution in block]


# --- section 7.4 in words -------------------------------------------------------------------


def observations(blocks: Sequence[Block]) -> list[Observation]:
    """Judges the paper's observations: whether each holds, and why."""
    stages = stages_of(blocks)
    return [
        _batch_and_channels(blocks),
        _different_within_a_block(blocks),
        _repeated_blocks(stages),
        _first_blocks(stages),
        *_what_is_fetched(stages),
    ]


def _batch_and_channels(blocks: Sequence[Block]) -> Observation:
    convolutions = [convolution for block in blocks for convolution in block]
    kinds = {"batch only": 0, "channels only": 0, "batch and channels": 0, "otherwise": 0}
    for convolution in convolutions:
        cut = set(convolution.activation.cuts)
        kind = {
            frozenset({0}): "batch only",
            frozenset({1}): "channels only",
            frozenset({0, 1}): "batch and channels",
        }.get(frozenset(cut), "otherwise")
        kinds[kind] += 1
    ways = len({convolution.way for convolution in convolutions})
    counted = ", ".join(f"{count} along {kind}" for kind, count in kinds.items() if count)
    batch = kinds["batch only"] + kinds["batch and channels"]
    channels = kinds["channels only"] + kinds["batch and channels"]
    return Observation(
        "Both the batch and the channel dimensions are partitioned, in a combination of "
        "different strategies.",
        batch > 0 and channels > 0 and ways > 1,
        (
            f"Of the activations that {len(convolutions)} convolutions read, {counted}.",
            f"The convolutions are partitioned in {ways} different ways (cuts of weights, input "
            "and output, and the split of the operator).",
        ),
    )


def _different_within_a_block(blocks: Sequence[Block]) -> Observation:
    several = sum(len({convolution.way for convolution in block}) > 1 for block in blocks)
    return Observation(
        "The convolutions within one residual block are partitioned differently.",
        several == len(blocks),
        (f"{several} of {len(blocks)} blocks have convolutions that are partitioned differently.",),
    )


def _repeated_blocks(stages: Sequence[Sequence[Block]]) -> Observation:
    evidence, alike = [], True
    for number, stage in enumerate(stages, 1):
        runs = runs_of(stage[1:])
        alike = alike and len(runs) <= 1
        counts = " + ".join(str(count) for _, count in runs) or "none"
        evidence.append(f"Group {number}: after the first block, runs of alike blocks: {counts}.")
    return Observation("Repeated blocks of a group are partitioned alike.", alike, tuple(evidence))


def _first_blocks(stages: Sequence[Sequence[Block]]) -> Observation:
    evidence, differs = [], 0
    repeated = [stage for stage in stages if len(stage) > 1]
    for stage in repeated:
        ways = [{conv.layer: conv.way for conv in block} for block in stage[:2]]
        differing = [layer for layer, way in ways[1].items() if ways[0].get(layer) != way]
        differs += bool(differing)
        comparison = (
            f"differ in {', '.join(differing)}" if differing else "agree in all common convolutions"
        )
        evidence.append(
            f"Group {stages.index(stage) + 1}: its first and second block {comparison}."
        )
    return Observation(
        "The first block of a group is partitioned differently from the others.",
        differs == len(repeated),
        tuple(evidence),
    )


def _what_is_fetched(stages: Sequence[Sequence[Block]]) -> list[Observation]:
    evidence, shares = [], []
    for number, stage in enumerate(stages, 1):
        convolutions = [convolution for block in stage for convolution in block]
        weights = sum(convolution.weight_bytes for convolution in convolutions)
        activations = sum(convolution.activation_bytes for convolution in convolutions)
        sizes = [
            sum(getattr(conv, tensor).bytes for conv in convolutions)
            for tensor in ("weight", "activation")
        ]
        shares.append(weights / max(weights + activations, 1))
        evidence.append(
            f"Group {number}: weights of {format_bytes(sizes[0])}, activations of "
            f"{format_bytes(sizes[1])}; fetched {format_bytes(weights)} of weights and their "
            f"gradients, {format_bytes(activations)} of activations ({shares[-1]:.0%} weights)."
        )
    return [
        Observation(
            "Lower groups fetch weights rather than activations.", shares[0] > 0.5, tuple(evidence)
        ),
        Observation(
            "Higher groups fetch activations rather than weights.",
            shares[-1] < 0.5 and shares == sorted(shares, reverse=True),
            (
                "From group to group the share of weights: "
                + ", ".join(f"{share:.0%}" for share in shares)
                + ".",
            ),
        ),
    ]
