"""Runs a script for some training steps and records its outputs, gradients and weights.

    python -m tofu.verify.script.record OUT STEPS DTYPE SCRIPT [ARGS]...

With ``MXNET_GRAPH_PASS=tofu`` in the environment the script runs partitioned. OUT is an ``.npz``
file: "STEP/KIND/NAME" -> array, in the order in which they were computed. With
STEPS "1+" there are more if no block runs partitioned in the first. DTYPE "float32~" is float32
with each step's inputs changed by one rounding.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import rnn

from tofu.config import graph_pass
from tofu.gluon.session.autograd_hooks import in_graph

__all__ = [
    "GRAPHS", "KINDS", "OWN", "RANDOM", "ROUNDED", "STEPS", "Recorder", "main", "rounded",
    "run_script",
]  # fmt: skip

KINDS = ("output", "gradient", "weight")
RANDOM = "random"  # whether operators draw random numbers
OWN = "own"  # whether the user describes operators
STEPS = "steps"  # number of steps; GRAPHS: number of partitioned graphs
GRAPHS = "graphs"
ROUNDED = "~"  # after a type: inputs change by one rounding
_MOST_SERIAL = 3
_SEED = 1


class _Ended(BaseException):
    """Ends the script after the last step."""


class Recorder:
    """Records the arrays that a script computes.

    Args:
        steps: number of steps to record.
        dtype: the data type in which to train, with ROUNDED behind it or not.
        until_partitioned: whether to record more steps until a block runs partitioned. A block
            whose operators may draw random numbers runs serially at first.

    Attributes:
        arrays: "STEP/KIND/NAME" -> array.
        steps: number of recorded steps.
        graphs: number of partitioned graphs.
    """

    def __init__(self, steps: int, dtype: str, *, until_partitioned: bool = False) -> None:
        self.arrays: dict[str, Any] = {}
        self.steps = 0
        self.graphs = 0
        self._more = _MOST_SERIAL if until_partitioned else 0
        self._steps = steps
        self._dtype = dtype.rstrip(ROUNDED)
        self._rounded = dtype.endswith(ROUNDED)
        self._step = 1
        self._depth = 0
        self._calls = 0
        self._cast: set[int] = set()

    def patch(self) -> Callable[[], None]:
        """Start recording; returns a function that stops it."""
        seams = [
            (gluon.Block, "__call__", self._call),
            (gluon.Trainer, "step", self._update),
            (gluon.Trainer, "update", self._update),
            (mx.mod.Module, "bind", self._bind),
            (mx.mod.Module, "forward", self._forward),
            (mx.mod.Module, "update", self._update_module),
            (gluon.nn.Dropout, "hybrid_forward", self._keep_all),
        ]
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in seams]
        for owner, name, replacement in seams:
            setattr(owner, name, replacement(getattr(owner, name)))

        def restore() -> None:
            for owner, name, function in before:
                setattr(owner, name, function)

        return restore

    def _keep(self, kind: str, name: str, array: Any) -> None:
        self.arrays[f"{self._step}/{kind}/{name}"] = array.asnumpy()

    def _keep_all(self, original: Any) -> Any:
        """Make Dropout keep every value: it would draw other numbers on each worker."""

        @functools.wraps(original)
        def forward(block: Any, F: Any, x: Any) -> Any:
            return F.identity(x)

        return forward

    def _call(self, original: Any) -> Any:
        @functools.wraps(original)
        def call(block: Any, *args: Any) -> Any:
            outermost = not self._depth
            if outermost and self._dtype != "float32" and isinstance(block, gluon.Block):
                args = self._converted(block, args)
            if outermost and self._rounded and autograd.is_recording() and not self._calls:
                args = tuple(map(rounded, args))
            self._depth += 1
            try:
                results = original(block, *args)
            finally:
                self._depth -= 1
            if outermost and autograd.is_recording():
                self._calls += 1
                for number, output in enumerate(_arrays(results)):
                    self._keep("output", f"{block.name}[{number}] call {self._calls}", output)
            return results

        return call

    def _converted(self, block: Any, args: Any) -> Any:
        if id(block) not in self._cast:
            self._cast.add(id(block))
            block.cast(self._dtype)
        return [
            self._in_type(arg, needs_gradient=_has_recurrent_layer(block))
            if isinstance(arg, mx.nd.NDArray) and arg.dtype == np.float32
            else arg
            for arg in args
        ]

    def _in_type(self, array: Any, *, needs_gradient: bool) -> Any:
        converted = array.astype(self._dtype)
        # In float64, MXNet's recurrent operator leaves the gradients of all layers but the last
        # undefined where nothing needs that of its data. Partitioned, it is unrolled.
        is_plain = graph_pass() is None and autograd.is_recording()
        if needs_gradient and is_plain and not in_graph(array):
            converted.attach_grad()
        return converted

    def _update(self, original: Any) -> Any:
        @functools.wraps(original)
        def update(trainer: Any, *args: Any, **options: Any) -> Any:
            trained = [p for p in trainer._params if p.grad_req != "null"]
            for parameter in trained:
                self._keep("gradient", parameter.name, parameter.grad())
            result = original(trainer, *args, **options)
            for parameter in trained:
                self._keep("weight", parameter.name, parameter.data())
            self._end_step()
            return result

        return update

    def _bind(self, original: Any) -> Any:
        """Have a Module's data and labels, and so all of it, be of the recorder's type."""

        def typed(described: Any) -> Any:
            if described is None or self._dtype == "float32":
                return described
            return [self._typed(each) for each in described]

        @functools.wraps(original)
        def bind(
            module: Any, data_shapes: Any, label_shapes: Any = None, *args: Any, **options: Any
        ) -> Any:
            return original(module, typed(data_shapes), typed(label_shapes), *args, **options)

        return bind

    def _typed(self, described: Any) -> Any:
        known = isinstance(described, mx.io.DataDesc)
        each = described if known else mx.io.DataDesc(*described)
        dtype = self._dtype if np.dtype(each.dtype) == np.float32 else each.dtype
        return mx.io.DataDesc(each.name, each.shape, dtype, each.layout)

    def _forward(self, original: Any) -> Any:
        @functools.wraps(original)
        def forward(module: Any, data_batch: Any, *args: Any, **options: Any) -> Any:
            if self._rounded and not self._calls:
                data_batch = copy.copy(data_batch)
                data_batch.data = list(map(rounded, data_batch.data))
            self._calls += 1
            return original(module, data_batch, *args, **options)

        return forward

    def _update_module(self, original: Any) -> Any:
        @functools.wraps(original)
        def update(module: Any) -> None:
            for name, output in zip(module.output_names, module.get_outputs()):
                self._keep("output", f"{name} call {self._calls}", output)
            group = module._exec_group
            names = [n for n in group.param_names if group.grad_req[n] != "null"]
            for name, (gradient, *_) in zip(group.param_names, group.grad_arrays):
                if name in names:
                    self._keep("gradient", name, gradient)
            original(module)
            for name, (weight, *_) in zip(group.param_names, group.param_arrays):
                if name in names:
                    self._keep("weight", name, weight)
            self._end_step()

        return update

    def _end_step(self) -> None:
        self.steps = self._step
        self._step += 1
        self._calls = 0
        if not self.graphs and self._more:
            self._more -= 1
            self._steps += 1
        if self._step > self._steps:
            raise _Ended


def _has_recurrent_layer(block: Any) -> bool:
    """Whether the block is, or has somewhere in it, one of Gluon's fused recurrent layers."""
    return isinstance(block, rnn.rnn_layer._RNNLayer) or any(
        map(_has_recurrent_layer, block._children.values())
    )


def rounded(argument: Any) -> Any:
    """An array whose numbers, unless all are whole ones, have changed by one rounding or not."""
    if not isinstance(argument, mx.nd.NDArray) or argument.dtype != np.float32:
        return argument
    values = argument.asnumpy()
    if argument.grad is not None or not (values % 1).any():  # whole: such as labels and words
        return argument
    changed = np.random.RandomState(_SEED).random_sample(values.shape) < 0.5
    with autograd.pause():
        rounded = argument.copy()
        rounded[:] = np.where(changed, np.nextafter(values, np.float32(np.inf)), values)
    return rounded


def _arrays(output: Any) -> list[Any]:
    """The arrays of a block's output, however nested."""
    if isinstance(output, mx.nd.NDArray):
        return [output]
    if isinstance(output, (list, tuple)):
        return [array for each in output for array in _arrays(each)]
    return []


def run_script(recorder: Recorder, script: str, args: Sequence[str]) -> None:
    """Run a script until the recorder has its steps, or to its end."""
    random.seed(_SEED)
    np.random.seed(_SEED)
    mx.random.seed(_SEED)
    restore = recorder.patch()
    sys.argv = [script, *args]
    sys.path[0] = str(Path(script).resolve().parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except _Ended:
        pass
    except SystemExit as end:
        if end.code and not recorder.arrays:
            raise
    finally:
        restore()


def main() -> None:
    """Run and record the script; the process's entry point."""
    out, steps, dtype, script, *args = sys.argv[1:]
    from tofu.analysis.described import is_random as draws
    from tofu.gluon.session.session import active, looking

    recorder = Recorder(int(steps.rstrip("+")), dtype, until_partitioned=steps.endswith("+"))
    is_random = is_own = False

    def note(problem: Any) -> None:
        nonlocal is_random, is_own
        from .wrong_operators import has_own

        recorder.graphs += 1
        is_random |= any(map(draws, {node.op for node in problem.graph.nodes if node.op}))
        is_own |= has_own(problem.graph)

    # The serial run has no session.
    with looking(problem=note) if active() is not None else contextlib.nullcontext():
        run_script(recorder, script, args)
    facts = {RANDOM: is_random, OWN: is_own, STEPS: recorder.steps, GRAPHS: recorder.graphs}
    arrays = {key: np.array(value) for key, value in facts.items()}
    # Pass a file object: savez would append ".npz" to a name.
    with open(out, "wb") as file:
        np.savez(file, **arrays, **recorder.arrays)


if __name__ == "__main__":
    main()
