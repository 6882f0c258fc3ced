"""Gradients of tiled parameters, left in the memory where the backward pass computes them.

MXNet gives every trained variable a gradient array as large as the weight. The executor of
a program computes gradients in memory that it plans itself, and the next forward pass puts
activations there. Copying the gradients out would take as much memory again as all weights.
So they are *lent*: the executor's arrays serve as the gradient until the program runs
again. In nearly every script an update has used the gradient by then, and it is given up.
Otherwise it is copied to the array that MXNet knows (*home*), which has no memory until
then. If a script keeps a gradient, or reads one when it might be gone, that gradient is
always copied home from then on (docs/design/0007-lent-gradients.md).

A program may divide a gradient in another way than its parameter, as the update needs it. It is
lent as it is; at home it has the parameter's layout.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Protocol

from mxnet import autograd, nd
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import _new_alloc_handle

from tofu.errors import GradientError
from tofu.gluon.session.marks import marks_of, set_marks

__all__ = ["Gradients", "arrays_without_memory", "is_overwritten"]


def is_overwritten(parameter: Any) -> bool:
    """Whether every backward pass overwrites a parameter's gradient."""
    return bool(parameter.grad_req == "write")


def arrays_without_memory(like: Sequence[Any]) -> list[Any]:
    """Return arrays that MXNet allocates only when something writes to them."""
    return [
        NDArray(_new_alloc_handle(array.shape, array.context, True, array.dtype)) for array in like
    ]


class Spread(Protocol):
    """The layouts of a parameter, and copies from one layout to another (TileState)."""

    layout: Any

    @property
    def update_layout(self) -> Any:
        """The box of the part that every worker updates."""

    def parts_of(self, tiles: list[Any], layout: Any, target: Any) -> list[Any]:
        """Return the tiles of one layout in another one, to read."""

    def relay(self, tiles: Sequence[Any], layout: Any, out: Sequence[Any]) -> None:
        """Fill `out`, in the parameter's layout, from tiles of another one."""


class _Part(NamedTuple):
    """One recording's part of a gradient."""

    serial: int
    tiles: list[Any]
    layout: Any
    lender: Any  # None, or a weak reference, which keeps no unused program alive


class Gradients:
    """The gradient of one parameter, as tiles.

    Args:
        name: the parameter's name, for errors.
        tiles: the tiles of its value. As in MXNet, their marks (`_fresh_grad`) say whether
            a backward pass has computed the gradient since the last update.
        home: the arrays that autograd knows as their gradients.
        state: how the parameter is spread.
        has_memory: whether `home` holds values; otherwise it stands for zeros.
    """

    def __init__(
        self,
        name: str,
        tiles: Sequence[Any],
        home: list[Any],
        state: Spread,
        *,
        has_memory: bool,
    ) -> None:
        self._name = name
        self._state = state
        self._tiles = list(tiles)
        self._home = home
        self._has_memory = has_memory
        self._lent: Optional[list[Any]] = None
        self._layout: Any = None  # of the lent arrays
        self._lender: Any = None
        self._is_gone = False
        self._is_kept = False
        # The backward call in progress has delivered these parts. The marks are from before it, if
        # they are set aside: another thread may read the gradient, and so keep it, at any time.
        self._parts: list[_Part] = []
        self._marks = [False] * len(home)
        self._are_set_aside = False
        self._is_reached: Optional[bool] = None  # by recordings of the backward call in progress

    @property
    def is_lent(self) -> bool:
        """Whether the gradient is in a program's memory."""
        return self._lent is not None

    @property
    def is_gone(self) -> bool:
        """Whether an update has used the gradient and its memory has since been reused."""
        return self._is_gone

    def tiles(self) -> list[Any]:
        """Return the gradient in the parameter's layout, to read or to write.

        Raises:
            GradientError: it is gone.
        """
        if self._lent is not None and self._layout.boxes != self._state.layout.boxes:
            self._bring_home()
        return self.in_place()[0]

    def to_update(self) -> list[Any]:
        """Return the part of each worker's update, to read.

        Raises:
            GradientError: it is gone.
        """
        tiles, layout = self.in_place()
        return self._state.parts_of(tiles, layout, self._state.update_layout)

    def in_place(self) -> tuple[list[Any], Any]:
        """Return the gradient wherever it is at the moment, and its layout there.

        Raises:
            GradientError: it is gone.
        """
        if self._is_gone:
            raise GradientError(
                f"gradient of parameter {self._name}: an update has used it, and its memory has "
                "been used again since; expected it to be read before. Read it between backward "
                "and the next forward pass, or call grad() of the parameter once before "
                "training, and its gradients will be kept"
            )
        if self._lent is not None:
            return self._lent, self._layout
        self._fill()
        return self._home, self._state.layout

    def read(self) -> None:
        """Prepare for a script that reads the gradient.

        If no program lends it now, it would be gone at this point of the next step. So it is
        kept from now on.

        Raises:
            GradientError: it is gone.
        """
        if self._lent is None:
            self.expect_to_stay()
        self.in_place()

    def keep(self) -> list[Any]:
        """Return the gradient at home, and keep it there from now on.

        Raises:
            GradientError: it is gone.
        """
        self._is_kept = True
        if self.in_place()[0] is not self._home:
            self._bring_home()
        return self._home

    def expect_to_stay(self) -> None:
        """Keep gradients at home from now on: backward calls may leave this one as it is."""
        self._is_kept = True

    def zero(self) -> None:
        """Set the gradient to 0."""
        self._lent, self._is_gone = None, False
        if self._has_memory:
            self._has_memory = False
            self._fill()

    def give_up(self) -> None:
        """Drop the gradient; from here on it is gone."""
        self._lent, self._is_gone = None, True

    def reclaim(self, lender: Any) -> None:
        """Stop using arrays that the lender is about to overwrite."""
        if self._lent is None or self._lender is None or self._lender() is not lender:
            return
        if any(marks_of(self._tiles)):
            self._bring_home()
        else:
            self.give_up()

    def before_backward(self) -> None:
        """Prepare for the parts that a backward call will deliver.

        If the script has the tiles, it may use them in a graph; their marks will then tell
        which gradients autograd has written. Other marks stay, as other threads read them.
        """
        self._parts = []
        self._are_set_aside = self._is_kept
        if self._are_set_aside:
            earlier = marks_of(self._tiles)
            self._marks = [was or before for was, before in zip(earlier, self._marks)]
            self._mark([False] * len(self._tiles))

    def hand_over(
        self, serial: int, tiles: Sequence[Any], lender: Any, layout: Optional[Any] = None
    ) -> None:
        """Take a recording's result: the gradient, or one more part of it.

        Args:
            serial: the recording's serial number.
            tiles: arrays that the lender may overwrite after ``reclaim``.
            lender: the program that owns them; None if they are never overwritten.
            layout: the layout of the tiles; None: the parameter's.
        """
        lender_of_part = None if lender is None else weakref.ref(lender)
        layout = self._state.layout if layout is None else layout
        self._parts.append(_Part(serial, list(tiles), layout, lender_of_part))

    def add(self, tiles: Sequence[Any]) -> None:
        """Add to a gradient that backward passes add to, and mark it as fresh.

        tiles: in the parameter's layout.
        """
        with autograd.pause():
            for total, tile in zip(self.keep(), tiles):
                total += tile
        self._mark([True] * len(self._tiles))

    @property
    def was_reached(self) -> bool:
        """Whether a recording of the last backward call reached it through autograd's gates."""
        return bool(self._is_reached)

    def watch_marks(self) -> None:
        """Prepare for a backward call that adds to the gradient through autograd's gates."""
        self._marks, self._is_reached = marks_of(self._tiles), None

    def note(self, *, is_reached: bool) -> None:
        """Note whether a recording, whose gates a backward call opens, reaches the gradient."""
        self._is_reached = self._is_reached or is_reached

    def settle_marks(self) -> None:
        """Restore the marks if no recording of a backward call has reached the gradient."""
        if self._is_reached is False:
            self._mark(self._marks)
        self._marks = [False] * len(self._tiles)

    def take_parts(self) -> list[tuple[list[Any], Any]]:
        """Return and forget the parts that a backward call delivered; restore the marks.

        Computes nothing: the results of ``autograd.grad``, which MXNet has not returned yet, lie
        where it puts the results of operators.

        Returns:
            The tiles of each part and their layout.
        """
        if self._are_set_aside:
            self._mark(self._marks)
            self._marks = [False] * len(self._tiles)
        return [(part.tiles, part.layout) for part in self._sorted_parts()]

    def after_backward(self) -> None:
        """Combine the parts that a backward call delivered into the gradient.

        If the script used tiles of the value itself, autograd has written to `home`.
        """
        parts = self._sorted_parts()
        written = [False] * len(self._tiles)
        if self._are_set_aside:
            written = marks_of(self._tiles)
            self._mark([wrote or was for wrote, was in zip(written, self._marks)])
            self._marks = [False] * len(self._tiles)
        if parts:
            self._mark([True] * len(self._tiles))
        if any(written):
            self._complete(written, parts[0] if parts else None)
        elif parts:
            _, self._lent, self._layout, self._lender = parts[0]
            self._is_gone = False
            if self._is_kept or len(parts) > 1:
                self._bring_home()
        with autograd.pause():
            for part in parts[1:]:
                for total, tile in zip(self._home, self._as_home(part.tiles, part.layout)):
                    total += tile

    def _sorted_parts(self) -> list[_Part]:
        """The parts, latest recording first as in MXNet, so sums are the same in every run."""
        parts, self._parts = self._parts, []
        return sorted(parts, key=lambda part: part.serial, reverse=True)

    def _as_home(self, tiles: list[Any], layout: Any) -> list[Any]:
        return self._state.parts_of(tiles, layout, self._state.layout)

    def _complete(self, written: Sequence[bool], part: Optional[_Part]) -> None:
        """Bring the whole gradient home after autograd has written some of its tiles.

        Delivered parts are added to these tiles. They replace the other tiles, which stay
        as they were if nothing was delivered.
        """
        delivered = None if part is None else self._as_home(part.tiles, part.layout)
        others = delivered
        if others is None and self._lent is not None:
            others = self._as_home(self._lent, self._layout)
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
            if self._layout.boxes != self._state.layout.boxes:
                self._state.relay(self._lent, self._layout, self._home)
            else:
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
        set_marks(self._tiles, marks)
