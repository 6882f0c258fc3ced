"""Routes a tensor's tiles from one placement to another, and counts the bytes sent.

A placement has an entry for each dimension of the mesh: the dimension of the tensor that it cuts,
WHOLE, or the reduction of the terms that its ranks hold. Cuts of one dimension nest as in DTensor:
the first dimension of the mesh is the outermost.

A route has one or two stages. In each, every rank receives the part of its new tile that it lacks,
of every term. Ranks that all need the same reduced tile may divide it, reduce a piece each, and
gather the pieces: 2 (k - 1) S bytes for a tensor of S bytes over k ranks, instead of k (k - 1) S.
The search counts the cheapest of these ways (docs/design/0013), and the route takes it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import torch

from tofu.boxes import Box

__all__ = ["WHOLE", "Layout", "Placement", "Stage", "received_elements", "route", "tile_box"]

WHOLE = -1
Placement = tuple[Union[int, str], ...]
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Layout of a tensor's tiles on the mesh.

    Attributes:
        cuts: pairs of a mesh dimension and the tensor dimension that it cuts, outermost
            first.
        terms: mesh dimensions whose ranks hold terms.
    """

    cuts: tuple[tuple[int, int], ...]
    terms: tuple[int, ...] = ()

    @property
    def different(self) -> frozenset[int]:
        """The dimensions of the mesh whose ranks hold different values."""
        return frozenset([*self.terms, *(dim for dim, _ in self.cuts)])


@dataclass(frozen=True)
class Stage:
    """One exchange.

    Attributes:
        source, target: layouts before and after the exchange. The target has no terms.
        reduction: the reduction that combines terms.
        all_reduce: the mesh dimension, if the stage is just an all-reduce over it; else None.
    """

    source: Layout
    target: Layout
    reduction: str
    all_reduce: Optional[int] = None


@functools.lru_cache(maxsize=1 << 14)
def route(
    shape: tuple[int, ...], source: Placement, target: Placement, sizes: Sizes
) -> tuple[Stage, ...]:
    """The stages that send least; ties prefer an all-reduce, then a single stage.

    Args:
        shape: shape of the whole tensor.
        source: placements before.
        target: placements after, without terms.
        sizes: sizes of the mesh's dimensions.
    """
    if source == target:
        return ()
    before, after = _layout(source), _layout(target)
    kinds = sorted({str(source[dim]) for dim in before.terms}) or ["sum"]
    assert len(kinds) == 1, f"terms of several kinds: {source}"
    ways: list[tuple[Stage, ...]] = []
    changed = [dim for dim, (one, other) in enumerate(zip(source, target)) if one != other]
    if len(changed) == 1 and changed[0] in before.terms and target[changed[0]] == WHOLE:
        ways.append((Stage(before, after, kinds[0], changed[0]),))
    ways.append((Stage(before, after, kinds[0]),))
    for pieces in _tilings(shape, before, after, sizes):
        ways.append((Stage(before, pieces, kinds[0]), Stage(pieces, after, "sum")))
    return min(ways, key=lambda way: sum(received_elements(shape, s, sizes) for s in way))


def _layout(placement: Placement) -> Layout:
    cuts = [(m, cut) for m, cut in enumerate(placement) if isinstance(cut, int) and cut != WHOLE]
    return Layout(tuple(cuts), tuple(m for m, cut in enumerate(placement) if isinstance(cut, str)))


def _tilings(shape: Sequence[int], before: Layout, after: Layout, sizes: Sizes) -> list[Layout]:
    """Ways for ranks that need the same tile to divide its reduction.

    Each way starts at another dimension of the tensor and takes the next one that divides. Ranks
    that hold the same terms are outermost: there a piece can lie within a rank's own tile.
    """
    shared = [dim for dim, size in enumerate(sizes) if dim not in after.different and size > 1]
    if not any(dim in before.terms for dim in shared):
        return []
    extents = tile_box(shape, after, sizes, (0,) * len(sizes)).shape
    order = sorted(shared, key=lambda dim: (-sizes[dim], dim in before.terms, dim))
    tilings: list[Layout] = []
    for first in range(len(extents)):
        left, splits = list(extents), []
        for dim in order:
            for k in range(len(left)):
                cut = (first + k) % len(left)
                if left[cut] % sizes[dim] == 0:
                    left[cut] //= sizes[dim]
                    splits.append((dim, cut))
                    break
        splits.sort(key=lambda split: split[0] in before.terms)
        pieces = Layout((*after.cuts, *splits))
        if splits and pieces not in tilings:
            tilings.append(pieces)
    return tilings


def tile_box(shape: Sequence[int], layout: Layout, sizes: Sizes, at: Sequence[int]) -> Box:
    """The tile of the rank at a place of the mesh."""
    begin, size = [0] * len(shape), list(shape)
    for mesh_dim, cut in layout.cuts:
        size[cut] //= sizes[mesh_dim]
        begin[cut] += at[mesh_dim] * size[cut]
    return Box((b, b + n) for b, n in zip(begin, size))


def received_elements(shape: Sequence[int], stage: Stage, sizes: Sizes) -> int:
    """The elements that all ranks together receive in a stage."""
    if stage.all_reduce is not None:
        tiles = tile_box(shape, stage.source, sizes, (0,) * len(sizes)).shape
        count = torch.Size(tiles).numel() * torch.Size(sizes).numel()
        return 2 * (sizes[stage.all_reduce] - 1) * int(count) // sizes[stage.all_reduce]
    return _pairs(tuple(shape), stage.source, stage.target, sizes)


@functools.lru_cache(maxsize=1 << 15)
def _pairs(shape: tuple[int, ...], source: Layout, target: Layout, sizes: Sizes) -> int:
    ranks = torch.tensor(list(itertools.product(*map(range, sizes))))
    own, new = _bounds(shape, source, sizes, ranks), _bounds(shape, target, sizes, ranks)
    low = torch.maximum(own[0][:, None], new[0][None])
    high = torch.minimum(own[1][:, None], new[1][None])
    common = (high - low).clamp(min=0).prod(-1)  # elements one rank has and another needs
    for dim in set(range(len(sizes))) - source.different:
        common *= ranks[:, None, dim] == ranks[None, :, dim]
    return int(common.sum() - common.diagonal().sum())


def _bounds(shape: Sequence[int], layout: Layout, sizes: Sizes, ranks: Any) -> tuple[Any, Any]:
    """Start and end of every rank's tile."""
    begin = torch.zeros(len(ranks), len(shape), dtype=torch.int64)
    size = list(shape)
    for mesh_dim, cut in layout.cuts:
        size[cut] //= sizes[mesh_dim]
        begin[:, cut] += ranks[:, mesh_dim] * size[cut]
    return begin, begin + torch.tensor(size, dtype=torch.int64)
