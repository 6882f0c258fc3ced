"""Gradients of tiled parameters, left in the memory where the backward pass makes them.

MXNet gives every trained variable an array for its gradient, beside the weight. The
executor of a program makes gradients in memory that it plans by itself, where the next
forward pass puts activations. To copy them out would take as much memory again as all
weights do. So they are *lent*: the executor's arrays stand for the gradient until the
program runs forward again. By then an update has used it, in nearly every script, and it
is given up; else it is copied to the array that MXNet knows (*home*), which has no memory
before. A script that asks for the tiles themselves (``list_grad``) may keep them: from then
on that parameter's gradients are always copied home.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Optional

from mxnet import autograd, nd
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import _new_alloc_handle

from tofu.errors import GradientError

__all__ = ["Gradients", "arrays_without_memory"]


def arrays_without_memory(like: Sequence[Any]) -> list[Any]:
    """Arrays that MXNet allocates when something writes to them."""
    return [
        NDArray(_new_alloc_handle(array.shape, array.context, True, array.dtype)) for array in like
    ]


class Gradients:
    """The gradient of one parameter, as tiles.

    Args:
        name: the parameter's, for errors.
        home: the arrays that autograd knows as its gradients.
        has_memory: whether they hold values; else they stand for zeros.

    Attributes:
        home: as given; read them through ``tiles`` or ``keep``.
        fresh: whether a backward pass has made the gradient since the last update. What
            autograd itself writes is marked on the parameter's tiles instead.
    """

    def __init__(self, name: str, home: list[Any], *, has_memory: bool) -> None:
        self.home = home
        self.fresh = False
        self._name = name
        self._has_memory = has_memory
        self._lent: Optional[list[Any]] = None
        self._lender: Any = None  # a weak reference, lest a program that nobody needs lives on
        self._is_gone = False  # used by an update, then overwritten
        self._is_kept = False
        self._parts: list[tuple[list[Any], Any]] = []  # of the backward call that is going on

    @property
    def is_lent(self) -> bool:
        """Whether the gradient lies with a program."""
        return self._lent is not None

    def tiles(self) -> Optional[list[Any]]:
        """The gradient wherever it lies, for now; None when it is gone."""
        if self._is_gone:
            return None
        if self._lent is not None:
            return self._lent
        self._fill()
        return self.home

    def keep(self) -> list[Any]:
        """The gradient at home, where it will be from now on.

        Raises:
            GradientError: it is gone.
        """
        if self._is_gone:
            raise GradientError(
                f"gradient of parameter {self._name}: an update has used it, and a forward pass "
                "after that its memory; expected it to be read before. Read it between backward "
                "and the next forward pass, or call list_grad() of the parameter once before "
                "training, and its gradients will be kept"
            )
        self._is_kept = True
        self._bring_home()
        return self.home

    def write(self, tiles: Sequence[Any]) -> None:
        """Let home hold these values."""
        for target, value in zip(self.home, tiles):
            value.copyto(target)
        self._lent, self._has_memory, self._is_gone = None, True, False

    def zero(self) -> None:
        """Set the gradient to 0."""
        self._lent, self._is_gone = None, False
        if self._has_memory:
            self._has_memory = False
            self._fill()

    def reclaim(self, lender: Any) -> None:
        """Stop using arrays that the lender is about to overwrite."""
        if self._lent is None or self._lender is None or self._lender() is not lender:
            return
        if self.fresh:
            self._bring_home()
        else:
            self._lent, self._is_gone = None, True

    def before_backward(self) -> None:
        """Get ready for what a backward call hands over."""
        self._parts = []

    def hand_over(self, tiles: Sequence[Any], lender: Any) -> None:
        """Take the gradient that a recording has made, or one more part of it.

        Args:
            tiles: arrays that the lender may overwrite after ``reclaim``.
            lender: whose they are, or None where nobody will.
        """
        self._parts.append((list(tiles), None if lender is None else weakref.ref(lender)))

    def take_parts(self) -> list[list[Any]]:
        """What a backward call has handed over, which is then forgotten."""
        parts, self._parts = self._parts, []
        return [tiles for tiles, _ in parts]

    def after_backward(self, *, wrote: bool) -> None:
        """Make the gradient of the parts that a backward call has handed over.

        wrote: whether autograd has written another part home, as it does when the script
            has used tiles of the value by itself.
        """
        parts, self._parts = self._parts, []
        if wrote:
            self._lent, self._has_memory, self._is_gone = None, True, False
        if not parts:
            return
        self.fresh = True
        if not wrote:
            self._lent, self._lender = parts.pop(0)
            self._is_gone = False
            if self._is_kept or parts:
                self._bring_home()
        with autograd.pause():
            for tiles, _ in parts:
                for total, part in zip(self.home, tiles):
                    total += part

    def _bring_home(self) -> None:
        if self._lent is None:
            self._fill()
            return
        with autograd.pause():
            self.write(self._lent)

    def _fill(self) -> None:
        if not self._has_memory:
            self._has_memory = True
            with autograd.pause():
                for array in self.home:
                    nd.zeros_like(array, out=array)
