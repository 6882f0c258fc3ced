"""The state of a parameter that is spread over the workers: its tiles, and each worker's update.

Every worker has a tile of the weight, and an optimizer's state of the part that it updates. In
most plans these are the same part. If a plan keeps a weight whole and divides its states, as
ZeRO does (docs/plans.md), a worker updates its part of the weight, and then all workers get all
parts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
from mxnet import autograd

from tofu.gluon.session.arrays import classic
from tofu.gluon.session.session import Session
from tofu.gluon.session.state import State
from tofu.plans.parts import Parts

from .gradients import Gradients

__all__ = ["TileState", "Update"]


@dataclasses.dataclass(frozen=True)
class Update:
    """The part of a parameter that every worker updates.

    Attributes:
        layout: the box of every worker's part.
        cuts: the dimension that each step of the plan cuts; None if no plan decided it.
    """

    layout: Any
    cuts: Optional[tuple[int, ...]] = None


@dataclasses.dataclass(eq=False)
class TileState:
    """The tiles of a parameter over the workers, and their gradients.

    Attributes:
        layout: the box of every worker's tile.
        session: the session that it belongs to.
        cuts: the dimension that each step of the plan cuts, -1 for none.
        parts: the number of parts that each step cuts into.
        update: the part that every worker updates, once a plan or a Trainer has decided it.
        tiles: the memory of the tiles, bound by programs.
        variables: arrays with that memory that autograd knows; None before a new first value.
        generation: counts replacements of that memory.
        updates: counts the times when a Trainer, or ``set_data``, has written there.
        numpy: whether the script gets arrays of ``mx.np``; all here are classic.
        gradients: its gradients; None for frozen parameters.
    """

    layout: Any
    session: Session
    cuts: tuple[int, ...]
    parts: Parts
    update: Optional[Update] = None
    tiles: list[Any] = dataclasses.field(default_factory=list)
    variables: Optional[list[Any]] = None
    generation: int = 0
    updates: int = 0
    numpy: bool = False
    gradients: Optional[Gradients] = None
    _known: tuple[int, Any, Any] = (-1, None, None)  # generation, layout and views of _views

    @property
    def contexts(self) -> tuple[Any, ...]:
        """The workers' contexts."""
        return self.session.contexts

    @property
    def state(self) -> State:
        """The session's state."""
        return self.session.state

    @property
    def update_layout(self) -> Any:
        """The box of the part that every worker updates."""
        return self.layout if self.update is None else self.update.layout

    def settle(self) -> None:
        """Update whole tiles, unless a plan has divided the update; later plans cannot."""
        if self.update is None:
            self.update = Update(self.layout, self.cuts)

    def scatter(
        self, whole: Any, out: Optional[Sequence[Any]] = None, layout: Optional[Any] = None
    ) -> list[Any]:
        """The tiles of `whole`, by default in the parameter's layout."""
        whole = classic(whole)
        layout = _with_dtype(layout or self.layout, whole)
        return self.state.backend.scatter(whole, layout, self.contexts, out=out, blocked=True)

    def gather(
        self,
        tiles: Sequence[Any],
        ctx: Any,
        out: Optional[Any] = None,
        layout: Optional[Any] = None,
    ) -> Any:
        """Assemble the whole array from `tiles` on `ctx`."""
        layout = _with_dtype(layout or self.layout, tiles[0])
        with autograd.pause():
            return self.state.backend.gather(tiles, layout, ctx, out=out)

    def relay(self, tiles: Sequence[Any], layout: Any, out: Sequence[Any]) -> None:
        """Fill `out`, in the parameter's layout, from tiles of another one."""
        backend = self.state.backend
        source = backend.tiles(tiles, _with_dtype(layout, tiles[0]))
        backend.relay(
            source, _with_dtype(self.layout, out[0]), self.contexts, out=out, blocked=True
        )

    def parts_of(self, tiles: list[Any], layout: Any, target: Any) -> list[Any]:
        """Return the tiles of one layout in another one, to read; views if possible."""
        if layout.boxes == target.boxes:
            return tiles
        backend = self.state.backend
        source = backend.tiles(tiles, _with_dtype(layout, tiles[0]))
        return backend.parts_of(source, _with_dtype(target, tiles[0]), self.contexts)

    def copies_parts(self) -> bool:
        """Whether a worker must copy the part that it updates, or the gradient of that part."""
        boxes = self.update_layout.boxes
        if self.gradients is not None and self.gradients.in_place()[1].boxes != boxes:
            return True
        return boxes != self.layout.boxes and self._views() is None

    def parts_to_update(self, tiles: list[Any]) -> list[Any]:
        """Return the part that each worker updates of the weight with these tiles."""
        if self.update_layout.boxes == self.layout.boxes:
            return tiles
        views = self._views()
        if views is not None:
            return list(views.arrays)
        return self.parts_of(tiles, self.layout, self.update_layout)

    def spread_parts(self, parts: list[Any], tiles: list[Any]) -> None:
        """Give all workers the part that each has updated.

        Args:
            parts: the result of ``parts_to_update``.
            tiles: the tiles of the weight.
        """
        if parts is tiles:
            return
        views = self._views()
        if views is not None:
            views.spread()
            return
        backend = self.state.backend
        layouts = (_with_dtype(each, tiles[0]) for each in (self.update_layout, self.layout))
        backend.spread_parts(*map(backend.tiles, (parts, tiles), layouts))

    def forget_views(self) -> None:
        """Let go of the tiles that ``tiles`` has replaced."""
        self._known = (-1, None, None)

    def _views(self) -> Optional[Any]:
        """The parts to update in the tiles' memory, made once; None if they are copies."""
        generation, layout, views = self._known
        if generation != self.generation or layout is not self.update_layout:
            backend, layout = self.state.backend, self.update_layout
            tiles = backend.tiles(self.tiles, _with_dtype(self.layout, self.tiles[0]))
            views = backend.views_of(tiles, layout)
            self._known = self.generation, layout, views
        return views


def _with_dtype(layout: Any, array: Any) -> Any:
    dtype = np.dtype(array.dtype).name
    return layout if layout.dtype == dtype else dataclasses.replace(layout, dtype=dtype)
