"""A model's training graphs at many batch sizes, of which three are made from the model.

graphs = BatchGraphs(training_graphs_of_batch)
graph = graphs.at(4096)(())
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Callable, Optional

from tofu import _core

__all__ = ["BatchGraphs", "MakeGraph"]

# Makes a training graph, given the BatchNorms that stay whole; None: MXNet runs all of them.
MakeGraph = Callable[[Optional[Collection[str]]], _core.Graph]

_MADE = 3  # two graphs give a line, and the third shows that it is right


class BatchGraphs:
    """Makes graphs from the model until a line through them gives the others.

    The extents of nearly every model grow linearly with the batch, and tracing a model takes
    far longer than moving extents along a line. A batch of one, for which a model may leave out
    a dimension, is always made from the model.

    Args:
        from_model: traces the model at a batch size.
    """

    def __init__(self, from_model: Callable[[int], MakeGraph]) -> None:
        self._from_model = functools.lru_cache(maxsize=_MADE)(from_model)
        self._lines: dict[Optional[frozenset[str]], _Line] = {}

    def at(self, batch: int) -> MakeGraph:
        """What makes the graphs at a batch size."""

        def make_graph(fused: Optional[Collection[str]]) -> _core.Graph:
            key = None if fused is None else frozenset(fused)
            line = self._lines.setdefault(key, _Line())
            graph = line.at(batch)
            if graph is None:
                graph = self._from_model(batch)(fused)
                line.add(batch, graph)
            return graph

        return make_graph


class _Line:
    """The first graphs that were made, in all of which the same BatchNorms stay whole."""

    def __init__(self) -> None:
        self._made: dict[int, _core.Graph] = {}

    def add(self, batch: int, graph: _core.Graph) -> None:
        """Keep one more graph, unless there are enough."""
        if batch > 1 and len(self._made) < _MADE:
            self._made[batch] = graph

    def at(self, batch: int) -> Optional[_core.Graph]:
        """The graph at a batch size, if it is known."""
        if batch in self._made:
            return self._made[batch]
        if batch == 1 or len(self._made) < _MADE or not self._is_straight:
            return None
        return self._between(batch)

    @functools.cached_property
    def _is_straight(self) -> bool:
        batch, graph = list(self._made.items())[-1]
        between = self._between(batch)
        return between is not None and between.hash == graph.hash

    def _between(self, batch: int) -> Optional[_core.Graph]:
        (low, graph), (high, other) = list(self._made.items())[:2]
        return graph.at_size(low, other, high, batch)
