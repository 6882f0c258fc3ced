"""Gradients of tiled parameters, left in the memory where the backward pass makes them.

MXNet gives every trained variable an array for its gradient, as large as the weight. The
executor of a program makes gradients in memory that it plans by itself, where the next
forward pass puts activations. To copy them out would take as much memory again as all
weights do. So they are *lent*: the executor's arrays stand for the gradient until the
program runs again. By then an update has used it, in nearly every script, and it is given
up; else it is copied to the array that MXNet knows (*home*), which has no memory before.
What a script reads at a time when it might be gone, or keeps, is always copied home from
then on (docs/design/0007-lent-gradients.md).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from mxnet import autograd, nd
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import _new_alloc_handle

from tofu.errors import GradientError

__all__ = ["Gradients", "arrays_without_memory", "is_overwritten"]


def is_overwritten(parameter: Any) -> bool:
    """Whether every backward pass overwrites a parameter's gradient; else it adds to it."""
    return bool(parameter.grad_req == "write")


def arrays_without_memory(like: Sequence[Any]) -> list[Any]:
    """Arrays that MXNet allocates when something writes to them."""
    return [
        NDArray(_new_alloc_handle(array.shape, array.context, True, array.dtype)) for array in like
    ]


class _Part(NamedTuple):
    """What one recording has made of a gradient."""

    serial: int
    tiles: list[Any]
    lender: Any  # a weak reference, to keep no unused program alive; or None


class Gradients:
    """The gradient of one parameter, as tiles.

    Args:
        name: the parameter's, for errors.
        tiles: those of its value. Their marks (`_fresh_grad`) say, as MXNet's do, whether a
            backward pass has made the gradient since the last update.
        home: the arrays that autograd knows as their gradients.
        has_memory: whether these hold values; else they stand for zeros.
    """

    def __init__(
        self, name: str, tiles: Sequence[Any], home: list[Any], *, has_memory: bool
    ) -> None:
        self._name = name
        self._tiles = list(tiles)
        self._home = home
        self._has_memory = has_memory
        self._lent: Optional[list[Any]] = None
        self._lender: Any = None
        self._is_gone = False
        self._is_kept = False
        # Of the backward call that is going on: what was delivered, and earlier marks.
        self._parts: list[_Part] = []
        self._marks = [False] * len(home)

    @property
    def is_lent(self) -> bool:
        """Whether the gradient lies with a program."""
        return self._lent is not None

    @property
    def is_gone(self) -> bool:
        """Whether an update has used the gradient, and its memory has been used since."""
        return self._is_gone

    def tiles(self) -> list[Any]:
        """The gradient wherever it lies, for now.

        Raises:
            GradientError: it is gone.
        """
        if self._is_gone:
            raise GradientError(
                f"gradient of parameter {self._name}: an update has used it, and its memory has "
                "been used again since; expected it to be read before. Read it between backward "
                "and the next forward pass, or call list_grad() of the parameter once before "
                "training, and its gradients will be kept"
            )
        if self._lent is not None:
            return self._lent
        self._fill()
        return self._home

    def read(self) -> list[Any]:
        """The same for a script.

        Where no program lends it, the script reads it at a time when it would be gone in the
        next step, so that it is kept from now on.

        Raises:
            GradientError: it is gone.
        """
        self._is_kept = self._is_kept or self._lent is None
        return self.tiles()

    def keep(self) -> list[Any]:
        """The gradient at home, where it will be from now on.

        Raises:
            GradientError: it is gone.
        """
        self._is_kept = True
        if self.tiles() is not self._home:
            self._bring_home()
        return self._home

    def follow(self) -> None:
        """Keep the gradient at home, as ``keep``; what is gone counts as zeros."""
        if self._is_gone:
            self.zero()
        self.keep()

    def zero(self) -> None:
        """Set the gradient to 0."""
        self._lent, self._is_gone = None, False
        if self._has_memory:
            self._has_memory = False
            self._fill()

    def give_up(self) -> None:
        """Let the gradient be gone."""
        self._lent, self._is_gone = None, True

    def reclaim(self, lender: Any) -> None:
        """Stop using arrays that the lender is about to overwrite."""
        if self._lent is None or self._lender is None or self._lender() is not lender:
            return
        if any(tile._fresh_grad for tile in self._tiles):
            self._bring_home()
        else:
            self.give_up()

    def before_backward(self) -> None:
        """Get ready for what a backward call delivers.

        Where the script has the tiles, and may use them in a graph, marks will tell which
        gradients autograd has written. Others are not touched: other threads look at them.
        """
        self._parts = []
        if self._is_kept:
            earlier = [tile._fresh_grad for tile in self._tiles]
            self._marks = [was or before for was, before in zip(earlier, self._marks)]
            self._mark([False] * len(self._tiles))

    def hand_over(self, serial: int, tiles: Sequence[Any], lender: Any) -> None:
        """Take what a recording has made: the gradient, or one more part of it.

        Args:
            serial: the recording's.
            tiles: arrays that the lender may overwrite after ``reclaim``.
            lender: whose they are; None: they stay as they are.
        """
        found = None if lender is None else weakref.ref(lender)
        self._parts.append(_Part(serial, list(tiles), found))

    def take_parts(self) -> list[list[Any]]:
        """What a backward call has delivered, which is then forgotten; marks as before it."""
        if self._is_kept:
            self._mark(self._marks)
            self._marks = [False] * len(self._tiles)
        return [part.tiles for part in self._sorted_parts()]

    def after_backward(self) -> None:
        """Make the gradient of the parts that a backward call has delivered.

        Where a script has used tiles of the value by itself, autograd has written home.
        """
        parts = self._sorted_parts()
        written = [False] * len(self._tiles)
        if self._is_kept:
            written = [tile._fresh_grad for tile in self._tiles]
            self._mark([wrote or was for wrote, was in zip(written, self._marks)])
            self._marks = [False] * len(self._tiles)
        if parts:
            self._mark([True] * len(self._tiles))
        if any(written):
            self._complete(written, parts[0].tiles if parts else None)
        elif parts:
            self._lent, self._lender, self._is_gone = parts[0].tiles, parts[0].lender, False
            if self._is_kept or len(parts) > 1:
                self._bring_home()
        with autograd.pause():
            for part in parts[1:]:
                for total, tile in zip(self._home, part.tiles):
                    total += tile

    def _sorted_parts(self) -> list[_Part]:
        """The latest recording first, as MXNet goes: sums are the same in every run."""
        parts, self._parts = self._parts, []
        return sorted(parts, key=lambda part: part.serial, reverse=True)

    def _complete(self, written: Sequence[bool], delivered: Optional[Sequence[Any]]) -> None:
        """Bring home the whole gradient where autograd has written some tiles.

        To those, what was delivered is added; the others become it, or stay as they were.
        """
        others = delivered or self._lent
        with autograd.pause():
            for i, target in enumerate(self._home):
                if written[i]:
                    if delivered is not None:
                        target += delivered[i]
                elif others is not None:
                    others[i].copyto(target)
                elif not self._has_memory:
                    nd.zeros_like(target, out=target)
        self._lent, self._has_memory, self._is_gone = None, True, False

    def _bring_home(self) -> None:
        assert self._lent is not None
        with autograd.pause():
            for target, value in zip(self._home, self._lent):
                value.copyto(target)
        self._lent, self._has_memory = None, True

    def _fill(self) -> None:
        if not self._has_memory:
            self._has_memory = True
            with autograd.pause():
                for array in self._home:
                    nd.zeros_like(array, out=array)

    def _mark(self, marks: Sequence[bool]) -> None:
        for tile, mark in zip(self._tiles, marks):
            tile._fresh_grad = mark
