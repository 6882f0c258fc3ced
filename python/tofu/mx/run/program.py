"""Runs a partitioned training graph in MXNet executors, step by step.

    program = Program(step, [mx.cpu(0), mx.cpu(1)], tiles)
    (loss,) = program.forward({"data": x, "label": y}, is_train=True, ctx=mx.cpu())
    gradients = program.backward([mx.nd.ones_like(loss)])   # {"w": [tile, tile]}

Forward and backward are either the two halves of one executor, or two executors. In one
executor, gradients can reuse the memory of activations that are no longer needed. With
two, the tensors that backward reads from forward are outputs of the first and, without a
copy, arguments of the second. Parameters and auxiliary states are the caller's tiles,
bound in place.

A graph that draws random numbers draws them in an executor of its own, in every forward.
They are arguments of the one for both halves, so a second backward finds the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Optional, Union

import mxnet as mx
import numpy as np
from mxnet.base import _LIB

from tofu import _core
from tofu.errors import GraphError
from tofu.mx.extension import load, run_part, run_whole, runs_parts
from tofu.plans.layout import Head, Layout, heads_of, variables_of

from .executor import bind, bind_apart
from .fault import failing_operator
from .first_run import is_memory_scarce, run_one_by_one
from .transfer import Tiles, gather, relay, scatter

__all__ = ["Program", "Value"]

Value = Union[mx.nd.NDArray, Tiles]
_OWN_ROLES = ("data", "head_grad:")
_PLANNED_ROLE = "state:"  # the optimizer's states; updates run outside of these graphs


class Program:
    """The executors of one partitioned graph, with one context per worker.

    Attributes:
        layouts: variable -> the box of every worker's tile.
        gradient_layouts: the same for gradients, as ``backward`` computes them.
    """

    def __init__(
        self,
        step: _core.TrainingStep,
        contexts: Sequence[mx.Context],
        tiles: Mapping[str, mx.nd.NDArray],
    ) -> None:
        """Bind both halves.

        Args:
            step: the result of tofu._core.schedule.
            contexts: one per worker.
            tiles: tile name -> array, for all parameters and auxiliary states. They are
                read and written in place. Tiles of head gradients are allocated, and those of
                data that are not among them.

        Raises:
            GraphError: a tile is missing or does not fit, the contexts are not one per
                worker, or MXNet refuses a graph.
            UnsupportedMXNetError: see tofu.mx.extension.load.
        """
        load()
        if step.workers != len(contexts):
            raise GraphError(
                f"the graph is partitioned over {step.workers} workers, but {len(contexts)} "
                "contexts are given; expected one context per worker"
            )
        self._contexts = list(contexts)
        self._variables = variables_of(step)
        self.layouts: dict[str, Layout] = {
            name: variable.layout for name, variable in self._variables.items()
        }
        self._tiles = dict(tiles)
        self._given = frozenset(tiles)
        self._allocate()
        kind = _Joint if step.is_joint else _Apart
        self._halves: Union[_Apart, _Joint] = kind(step, self._contexts, self._tiles)
        self._outputs = [h for h in heads_of(step.forward_heads) if h.role == "output"]
        self._heads = heads_of(step.backward_heads)
        named = [(head.role.partition(":"), head.layout) for head in self._heads]
        self.gradient_layouts = {name: at for (kind, _, name), at in named if kind == "gradient"}

    def forward(
        self, inputs: Mapping[str, Value], *, is_train: bool, ctx: mx.Context
    ) -> list[mx.nd.NDArray]:
        """Run the forward graph; return the whole outputs on `ctx`, in new arrays.

        Arguments and errors are those of ``forward_tiles``.
        """
        return [gather(*tiles, ctx) for tiles in self.forward_tiles(inputs, is_train=is_train)]

    def forward_tiles(self, inputs: Mapping[str, Value], *, is_train: bool) -> list[Tiles]:
        """Run the forward graph.

        Args:
            inputs: name -> whole array or tiles, for every variable with the role "data".
            is_train: whether operators behave as in training.

        Returns:
            The outputs, valid until the program runs again.

        Raises:
            GraphError: an input is missing or has another shape.
        """
        for name, variable in self._variables.items():
            if variable.role == "data":
                if name not in inputs:
                    raise GraphError(f"forward: input {name!r} is missing; got {sorted(inputs)}")
                self._fill(name, inputs[name])
        arrays = self._halves.forward(is_train=is_train)
        return [
            Tiles([arrays[number] for number in head.numbers], head.layout)
            for head in self._outputs
        ]

    def backward(
        self,
        head_gradients: Sequence[Optional[Value]],
        in_place: Collection[str] = (),
        unchanged: Collection[str] = (),
    ) -> dict[str, list[mx.nd.NDArray]]:
        """Run the backward graph on the activations of the last forward.

        In one executor the first backward overwrites them. A second one, of a
        retained graph, runs forward again first.

        head_gradients: one whole array, or its tiles, per output; None counts as zero.
        in_place: the variables whose gradients are returned as computed, in ``gradient_layouts``;
            other gradients get the layout of their variable.
        unchanged: the auxiliary states that keep their values.

        Returns the tiles of every gradient, one per worker. They are valid until the program
        runs again, because in one executor activations reuse their memory. Writes new
        auxiliary states into their tiles.

        Raises GraphError if the graph has no backward half or shapes disagree.
        """
        if not self._halves.has_backward:
            raise GraphError("backward: this graph was made without gradients")
        for name, variable in self._variables.items():
            kind, _, index = variable.role.partition(":")
            if kind == "head_grad":
                self._fill(name, head_gradients[int(index)])
        arrays = self._halves.backward()
        gradients: dict[str, list[mx.nd.NDArray]] = {}
        for head in self._heads:
            kind, _, name = head.role.partition(":")
            tiles = [arrays[number] for number in head.numbers]
            if kind == "aux" or name not in in_place:
                tiles = self._as_variable(name, head, tiles)
            if kind == "gradient":
                gradients[name] = tiles
            elif kind == "aux" and name not in unchanged:
                for target, tile in zip(self._variables[name].tiles, tiles):
                    tile.copyto(self._tiles[target])
        return gradients

    @property
    def is_used_up(self) -> bool:
        """Whether ``backward`` would have to run forward again, with the current parameters."""
        return self._halves.is_used_up

    def failing_operator(self) -> Optional[str]:
        """Run the last step again up to the first operator that throws, and describe it.

        Runs the backward half only if it has run since the last forward. Returns None if no
        operator throws this time. Overwrites gradients returned earlier.
        """
        return self._halves.failing_operator(self._contexts) if runs_parts() else None

    def fails_to_gather(self, number: int, ctx: mx.Context) -> bool:
        """Whether a copy throws when an output of the last forward is gathered on `ctx`.

        Clears errors. Missing memory for the whole output does not count.
        """
        head = self._outputs[number]
        tiles = [self._halves.arrays[each] for each in head.numbers]
        with contextlib.suppress(mx.MXNetError):
            gather(tiles, head.layout, ctx)
        return bool(_LIB.MXNDArrayWaitAll() != 0)

    def _as_variable(
        self, name: str, head: Head, tiles: list[mx.nd.NDArray]
    ) -> list[mx.nd.NDArray]:
        """Re-tile a head like its variable; in nearly every plan it is tiled so already."""
        layout = self.layouts[name]
        if head.layout.boxes == layout.boxes:
            return tiles
        return relay(Tiles(tiles, head.layout), layout, self._contexts)

    def _allocate(self) -> None:
        for name, variable in self._variables.items():
            if variable.role.startswith(_PLANNED_ROLE):
                continue
            layout = variable.layout
            for tile, box, context in zip(variable.tiles, layout.boxes, self._contexts):
                if variable.role.startswith(_OWN_ROLES) and tile not in self._given:
                    self._tiles[tile] = mx.nd.zeros(box.shape, context, layout.dtype)
                    continue
                array = self._tiles.get(tile)
                found = array is not None and (tuple(array.shape), np.dtype(array.dtype).name)
                if found != (box.shape, layout.dtype):
                    raise GraphError(
                        f"tile {tile!r} of {variable.role} {name!r}: found "
                        f"{found or 'none'}, expected {(box.shape, layout.dtype)}"
                    )

    def _fill(self, name: str, value: Optional[Value]) -> None:
        tiles = [self._tiles[tile] for tile in self._variables[name].tiles]
        if value is None:
            for tile in tiles:
                tile[:] = 0
            return
        try:
            if self._given.issuperset(self._variables[name].tiles):
                _check_given(value, tiles)
            elif not isinstance(value, Tiles):
                scatter(value, self.layouts[name], self._contexts, out=tiles)
            else:
                relay(value, self.layouts[name], self._contexts, out=tiles)
        except GraphError as error:
            raise GraphError(f"variable {name!r}: {error}") from error


def _check_given(value: Value, tiles: Sequence[mx.nd.NDArray]) -> None:
    arrays = value.arrays if isinstance(value, Tiles) else []
    if len(arrays) != len(tiles) or any(a is not b for a, b in zip(arrays, tiles)):
        raise GraphError("found other arrays, expected the tiles that the program was bound to")


class _Apart:
    """One executor per half; without a backward half, only the first."""

    is_used_up = False  # backward overwrites no activations

    def __init__(
        self,
        step: _core.TrainingStep,
        contexts: Sequence[mx.Context],
        tiles: Mapping[str, mx.nd.NDArray],
    ) -> None:
        self._forward = bind("forward", step.graphs[0], contexts, tiles)
        self.arrays: list[mx.nd.NDArray] = self._forward.outputs
        self.has_backward = bool(step.backward_heads)
        self._ran_backward = False
        if self.has_backward:
            saved = {name: self.arrays[head] for name, head in step.saved}
            self._backward = bind_apart("backward", step.graphs[1], contexts, {**tiles, **saved})
        executors = [self._forward, *([self._backward] if self.has_backward else [])]
        bound = list(zip(executors, step.graphs))
        self._may_run_out = runs_parts() and is_memory_scarce(bound, contexts)

    def forward(self, *, is_train: bool) -> list[mx.nd.NDArray]:
        self._ran_backward = False
        if self._may_run_out:
            self._allocate(is_train=is_train)
        else:
            run_whole(self._forward, is_train=is_train)
        return self.arrays

    def _allocate(self, *, is_train: bool) -> None:
        """Run forward, and have MXNet allocate backward's memory, as _Joint._allocate does."""
        run_one_by_one(self._forward, is_train=is_train)
        if self.has_backward:
            self._ran_backward = True
            run_one_by_one(self._backward, is_train=True)
            self._ran_backward = False
        self._may_run_out = False

    def backward(self) -> list[mx.nd.NDArray]:
        self._ran_backward = True
        run_whole(self._backward, is_train=True)
        gradients: list[mx.nd.NDArray] = self._backward.outputs
        return gradients

    def failing_operator(self, contexts: Sequence[mx.Context]) -> Optional[str]:
        operator = failing_operator(self._forward, contexts, is_train=True)
        if operator is None and self._ran_backward:
            operator = failing_operator(self._backward, contexts, is_train=True)
        return operator


class _Joint:
    """One executor for both halves."""

    has_backward = True

    def __init__(
        self,
        step: _core.TrainingStep,
        contexts: Sequence[mx.Context],
        tiles: Mapping[str, mx.nd.NDArray],
    ) -> None:
        *draws, both = step.graphs
        # Bound on the script's thread, whose generator the script seeds.
        self._draws = [bind("drawing", graph, contexts, {}) for graph in draws]
        drawn = [array for executor in self._draws for array in executor.outputs]
        saved = {name: drawn[head] for name, head in step.saved}
        self._executor = bind_apart("training", both, contexts, {**tiles, **saved})
        self.arrays: list[mx.nd.NDArray] = self._executor.outputs
        self._middle = step.forward_nodes
        self._end = step.nodes
        self._is_train = True
        self.is_used_up = False
        self._may_run_out = is_memory_scarce([(self._executor, both)], contexts)

    def forward(self, *, is_train: bool) -> list[mx.nd.NDArray]:
        for executor in self._draws:
            run_whole(executor, is_train=is_train)
        self._is_train = is_train
        self._run_forward()
        return self.arrays

    def _run_forward(self) -> None:
        if self._may_run_out:
            self._allocate()
        run_part(self._executor, 0, self._middle, is_train=self._is_train)
        self.is_used_up = False

    def _allocate(self) -> None:
        """Have MXNet allocate the memory of both halves, with operators that run one by one.

        The backward half must run here, too, since its own thread must not wait for the engine.
        Its results are of no use, and it overwrites the activations of the forward half.
        """
        run_one_by_one(self._executor, 0, self._middle, is_train=self._is_train)
        self.is_used_up = True
        run_one_by_one(self._executor, self._middle, self._end, is_train=True)
        self._may_run_out = False

    def backward(self) -> list[mx.nd.NDArray]:
        if self.is_used_up:
            self._run_forward()
        run_part(self._executor, self._middle, self._end, is_train=True)
        self.is_used_up = True
        return self.arrays

    def failing_operator(self, contexts: Sequence[mx.Context]) -> Optional[str]:
        end = self._end if self.is_used_up else self._middle
        self.is_used_up = True
        for executor in self._draws:
            operator = failing_operator(executor, contexts, is_train=True)
            if operator is not None:
                return operator
        return failing_operator(self._executor, contexts, is_train=True, end=end)
