"""A partitioned training graph as two MXNet executors, called step by step.

    program = Program(phases, [mx.cpu(0), mx.cpu(1)], tiles)
    (loss,) = program.forward({"data": x, "label": y}, is_train=True, ctx=mx.cpu())
    gradients = program.backward([mx.nd.ones_like(loss)])   # {"w": [tile, tile]}

Forward and backward are the halves of one executor, so that gradients can lie where
activations lay that have been read; or executors of their own: what backward reads of
forward is then an output of the one and, without a copy, an argument of the other.
Parameters and auxiliary states are the caller's tiles, bound where they lie.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

import mxnet as mx
import numpy as np

from tofu.errors import GraphError

from .executor import bind, bind_apart
from .extension import load, run_part, runs_parts
from .fault import failing_operator
from .layout import Layout, gather, layout_of, scatter

__all__ = ["Program"]

_FORMAT = "tofu-phases"
_VERSION = 1
_OWN_ROLES = ("data", "head_grad:")
_PLANNED_ROLE = "state:"  # of the optimizer, which updates outside of these graphs


class Program:
    """Executors of one partitioned graph over one context per worker.

    Attributes:
        layouts: variable -> how it is divided.
    """

    def __init__(
        self, phases: str, contexts: Sequence[mx.Context], tiles: Mapping[str, mx.nd.NDArray]
    ) -> None:
        """Bind both graphs.

        Args:
            phases: what tofu._core.phases returns.
            contexts: one per worker.
            tiles: tile name -> array, for all parameters and auxiliary states. They are
                read and written in place. Tiles of data and head gradients are allocated.

        Raises:
            GraphError: the text is no such document, a tile is missing or does not fit,
                or MXNet refuses a graph.
            UnsupportedMXNetError: see tofu.mx.run.extension.load.
        """
        load()
        data = _parse(phases, len(contexts))
        self._contexts = list(contexts)
        self._variables: dict[str, dict[str, Any]] = data["variables"]
        self.layouts: dict[str, Layout] = {
            name: layout_of(record) for name, record in self._variables.items()
        }
        self._tiles = dict(tiles)
        self._allocate()
        self._halves = _bind(data, self._contexts, self._tiles)
        self._outputs = [head for head in data["forward"]["heads"] if head["role"] == "output"]
        backward = data["backward"]
        self._heads: list[dict[str, Any]] = [] if backward is None else backward["heads"]

    def forward(
        self, inputs: Mapping[str, mx.nd.NDArray], *, is_train: bool, ctx: mx.Context
    ) -> list[mx.nd.NDArray]:
        """Run the forward graph.

        Args:
            inputs: name -> whole array, for every variable with the role "data".
            is_train: whether operators behave as in training.
            ctx: where the outputs are wanted.

        Returns:
            The whole outputs, new arrays.

        Raises:
            GraphError: an input is missing or has another shape.
        """
        for name, record in self._variables.items():
            if record["role"] == "data":
                if name not in inputs:
                    raise GraphError(f"forward: input {name!r} is missing; got {sorted(inputs)}")
                self._fill(name, inputs[name])
        arrays = self._halves.forward(is_train=is_train)
        return [
            gather([arrays[tile["head"]] for tile in _by_worker(head)], layout_of(head), ctx)
            for head in self._outputs
        ]

    def backward(
        self, head_gradients: Sequence[Optional[mx.nd.NDArray]]
    ) -> dict[str, list[mx.nd.NDArray]]:
        """Run the backward graph on what the last forward has left.

        In one executor a first backward uses that up; a second one, of a retained graph,
        runs forward again before.

        head_gradients: one whole array per output; None counts as zero.

        Returns the tiles of every gradient, one per worker, valid until the program runs
        again: in one executor activations lie there. New auxiliary states are written into
        their tiles.

        Raises GraphError when the graph has no backward half or shapes disagree.
        """
        if not self._halves.has_backward:
            raise GraphError("backward: this graph was made without gradients")
        for name, record in self._variables.items():
            kind, _, index = record["role"].partition(":")
            if kind == "head_grad":
                self._fill(name, head_gradients[int(index)])
        arrays = self._halves.backward()
        gradients: dict[str, list[mx.nd.NDArray]] = {}
        for head in self._heads:
            kind, _, name = head["role"].partition(":")
            tiles = self._as_variable(name, head, [arrays[t["head"]] for t in _by_worker(head)])
            if kind == "gradient":
                gradients[name] = tiles
            elif kind == "aux":
                for record, tile in zip(_by_worker(self._variables[name]), tiles):
                    tile.copyto(self._tiles[record["name"]])
        return gradients

    @property
    def is_used_up(self) -> bool:
        """Whether ``backward`` would have to run forward again, at today's parameters."""
        return self._halves.is_used_up

    def failing_operator(self) -> Optional[str]:
        """Run again what ran last, up to the first operator that throws, and say which.

        None where none does so this time. Gradients that were returned are lost.
        """
        return self._halves.failing_operator(self._contexts) if runs_parts() else None

    def _as_variable(
        self, name: str, head: Mapping[str, Any], tiles: list[mx.nd.NDArray]
    ) -> list[mx.nd.NDArray]:
        """Tiles divided as the variable is; the plan nearly always has them so already."""
        layout, wanted = layout_of(head), self.layouts[name]
        if layout.boxes == wanted.boxes:
            return tiles
        return scatter(gather(tiles, layout, self._contexts[0]), wanted, self._contexts)

    def _allocate(self) -> None:
        for name, record in self._variables.items():
            if record["role"].startswith(_PLANNED_ROLE):
                continue
            layout = self.layouts[name]
            for tile, box in zip(_by_worker(record), layout.boxes):
                context = self._contexts[tile["worker"]]
                if record["role"].startswith(_OWN_ROLES):
                    self._tiles[tile["name"]] = mx.nd.zeros(box.shape, context, layout.dtype)
                    continue
                array = self._tiles.get(tile["name"])
                found = array is not None and (tuple(array.shape), np.dtype(array.dtype).name)
                if found != (box.shape, layout.dtype):
                    raise GraphError(
                        f"tile {tile['name']!r} of {record['role']} {name!r}: found "
                        f"{found or 'none'}, expected {(box.shape, layout.dtype)}"
                    )

    def _fill(self, name: str, whole: Optional[mx.nd.NDArray]) -> None:
        tiles = [self._tiles[tile["name"]] for tile in _by_worker(self._variables[name])]
        if whole is None:
            for tile in tiles:
                tile[:] = 0
            return
        try:
            scatter(whole, self.layouts[name], self._contexts, out=tiles)
        except GraphError as error:
            raise GraphError(f"variable {name!r}: {error}") from error


class _Apart:
    """Two executors; the second is absent where there is no backward half."""

    is_used_up = False  # activations stay

    def __init__(
        self,
        data: Mapping[str, Any],
        contexts: Sequence[mx.Context],
        tiles: Mapping[str, mx.nd.NDArray],
    ) -> None:
        self._forward = bind("forward", data["forward"]["graph"], contexts, tiles)
        self.has_backward = data["backward"] is not None
        if self.has_backward:
            arrays = self._forward.outputs
            saved = {each["name"]: arrays[each["forward_head"]] for each in data["saved"]}
            self._backward = bind_apart(
                "backward", data["backward"]["graph"], contexts, {**tiles, **saved}
            )

    def forward(self, *, is_train: bool) -> list[mx.nd.NDArray]:
        outputs: list[mx.nd.NDArray] = self._forward.forward(is_train=is_train)
        return outputs

    def backward(self) -> list[mx.nd.NDArray]:
        gradients: list[mx.nd.NDArray] = self._backward.forward(is_train=True)
        return gradients

    def failing_operator(self, contexts: Sequence[mx.Context]) -> Optional[str]:
        found = failing_operator(self._forward, contexts, is_train=True)
        if found is None and self.has_backward:
            found = failing_operator(self._backward, contexts, is_train=True)
        return found


class _Joint:
    """Both halves in one executor."""

    has_backward = True

    def __init__(
        self,
        data: Mapping[str, Any],
        contexts: Sequence[mx.Context],
        tiles: Mapping[str, mx.nd.NDArray],
    ) -> None:
        joint = data["joint"]
        self._executor = bind_apart("training", joint["graph"], contexts, tiles)
        self._arrays: list[mx.nd.NDArray] = self._executor.outputs
        self._middle: int = joint["forward_nodes"]
        self._end: int = joint["nodes"]
        self._is_train = True
        self.is_used_up = False

    def forward(self, *, is_train: bool) -> list[mx.nd.NDArray]:
        run_part(self._executor, 0, self._middle, is_train=is_train)
        self._is_train, self.is_used_up = is_train, False
        return self._arrays

    def backward(self) -> list[mx.nd.NDArray]:
        if self.is_used_up:
            self.forward(is_train=self._is_train)
        run_part(self._executor, self._middle, self._end, is_train=True)
        self.is_used_up = True
        return self._arrays

    def failing_operator(self, contexts: Sequence[mx.Context]) -> Optional[str]:
        self.is_used_up = True
        return failing_operator(self._executor, contexts, is_train=True)


def _bind(
    data: Mapping[str, Any],
    contexts: Sequence[mx.Context],
    tiles: Mapping[str, mx.nd.NDArray],
) -> Union[_Apart, _Joint]:
    kind = _Apart if data.get("joint") is None else _Joint
    return kind(data, contexts, tiles)


def _by_worker(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    return sorted(record["tiles"], key=lambda tile: int(tile["worker"]))


def _parse(phases: str, num_contexts: int) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(phases)
        found = (data["format"], data["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise GraphError(
            f"phases: cannot be read ({type(error).__name__}: {error}); expected the JSON that "
            "tofu._core.phases returns"
        ) from error
    if found != (_FORMAT, _VERSION):
        raise GraphError(f"phases: found format {found}, expected {(_FORMAT, _VERSION)}")
    if data["workers"] != num_contexts:
        raise GraphError(
            f"phases: partitioned over {data['workers']} workers, but {num_contexts} contexts "
            "are given; expected one context per worker"
        )
    return data
