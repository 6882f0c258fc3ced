"""Hybridized blocks, run partitioned.

A HybridBlock's cached operator is the seam: what Gluon traced for it is planned,
and calls go to partitioned programs instead. A block without trainable parameters
(a hybridized loss) is partitioned where it gets the output of another block, which stays
tiles; else it runs as MXNet would run it. So does one that cannot be partitioned, after
one warning with the reason.
"""

from __future__ import annotations

import collections
import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import numpy as np
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.gluon import block as gluon_block

from tofu import _core
from tofu.errors import ConfigError, TofuError
from tofu.gluon.session import messages
from tofu.gluon.session.arrays import classic, gives_numpy, shown
from tofu.gluon.session.autograd_hooks import in_graph
from tofu.gluon.session.session import Session, active
from tofu.gluon.training import outputs, views
from tofu.gluon.training.parameter import TilingError, check_context, is_tiled

from .compile_block import make_pool
from .program_pool import Pool, Signature
from .reach import Reach, of_hybridized

__all__ = ["PartitionedBlock", "build_cache", "call_cached_op", "untie"]

# The most signatures (batch sizes, modes) of a block that are kept bound at a time.
_MAX_POOLS = 32


class PartitionedBlock:
    """A traced block with the programs that run it.

    Args:
        block: the block, traced and with its parameters initialized.

    Attributes:
        name: its name.
        gives_numpy: whether its outputs are arrays of ``mx.np``.
        reach: the variables that a backward call through each output reaches, if it is hybridized.
    """

    reach: Reach = None

    def __init__(self, block: Any) -> None:
        self.cached_op = block._cached_op
        self.name = block.name or type(block).__name__
        self._symbol = block._cached_graph[1]
        self.gives_numpy = gives_numpy(self._symbol)
        arguments = list(zip(self._symbol.list_inputs(), block._cached_op_args))
        self._inputs = [(name, at) for name, (is_input, at) in arguments if is_input]
        self._parameters = {name: p for name, (is_input, p) in arguments if not is_input}
        self._pools: collections.OrderedDict[Signature, Optional[Pool]] = collections.OrderedDict()
        self._told: set[str] = set()
        self._untold: list[str] = []

    def wanted(self) -> bool:
        """Whether there is anything to partition: a trainable or tiled parameter."""
        return any(p.grad_req != "null" or is_tiled(p) for p in self.parameters)

    @property
    def parameters(self) -> list[Any]:
        """The parameters that the symbol reads."""
        return list(self._parameters.values())

    @property
    def inputs(self) -> list[tuple[str, int]]:
        """The symbol's inputs, with their places among the arrays of a call."""
        return self._inputs

    def whole_parameters(self) -> dict[str, Any]:
        """The values of the parameters that the symbol reads, as NumPy arrays."""
        return {name: p.data().asnumpy() for name, p in self._parameters.items()}

    def head_gradients_read(self) -> frozenset[int]:
        """The outputs of the last program that ran whose gradients its backward pass reads."""
        pool = next(reversed(self._pools.values()), None)
        return frozenset() if pool is None else pool.head_gradients_read

    def release_last(self) -> None:
        """Free the memory of the last program that ran unless it is for training."""
        for signature, pool in reversed(self._pools.items()):
            if pool is not None and not signature.gradients:
                pool.release()
            return

    def run(
        self,
        arrays: Sequence[Any],
        current: Session,
        *,
        is_trial: bool = False,
        repeat: Optional[Callable[[], Sequence[Any]]] = None,
        reach: Reach = None,
    ) -> Optional[list[Any]]:
        """The outputs as MXNet gives them, or None where the block has to run serially.

        Args:
            arrays: the inputs of the call, flattened.
            current: the session.
            is_trial: whether the same call is recorded next: it uses the same program then.
            repeat: as ``Recording.repeat``.
            reach: the variables that a backward call through each output reaches.
        """
        inputs = {name: outputs.look(classic(arrays[at])) for name, at in self._inputs}
        if any(array.stype != "default" for array in inputs.values()):
            self.warn_serial("an input is sparse, expected dense ones", current)
            return None
        self._check_contexts(inputs)
        trained = {name for name, p in self._parameters.items() if p.grad_req != "null"}
        train, record = autograd.is_training(), autograd.is_recording()
        gradients = set(trained)
        if record or is_trial:
            tokens = {name: outputs.token(array) for name, array in inputs.items()}
            gradients |= {n for n, token in tokens.items() if token is not None and in_graph(token)}
        record = record and bool(gradients)
        if not record and not train:
            gradients = set()
        signature = self._signature(inputs, gradients, train=train)
        with current.state.preparing:  # threads that share parameters must agree on their tiles
            pool = self._pool(signature, trained, inputs, current)
        if pool is None:
            return None
        views.flush(current.state.views)
        context = arrays[0].ctx
        results = pool.run(inputs, record=record, context=context, repeat=repeat, reach=reach)
        return shown(results, numpy=self.gives_numpy)

    def check_not_strict(self, current: Session) -> None:
        """Raise ConfigError if all of the block's parameters are frozen, under TOFU_STRICT."""
        if current.strict and self._parameters:
            reason = (
                "all its parameters are frozen (grad_req 'null'), so that it runs on one device"
            )
            messages.check_serial(self.name, reason, current)

    def warn_serial(self, reason: str, current: Session) -> None:
        """Have ``run_serially`` warn, once per reason, that the block or a call runs serially.

        Raises:
            ConfigError: the user has asked for that, or the saved plan is for this block.
        """
        if reason not in self._told:
            messages.check_serial(self.name, reason, current)
            self._told.add(reason)
            self._untold.append(reason)

    def run_serially(self, run: Callable[[], Any]) -> Any:
        """Run the block's call as MXNet does, and tell why; an error of MXNet's comes alone."""
        reasons, self._untold = self._untold, []
        try:
            results = run()
        except BaseException:
            self._told.difference_update(reasons)
            raise
        for reason in reasons:
            messages.warn_serial(self.name, reason)
        return results

    def _check_contexts(self, inputs: Mapping[str, Any]) -> None:
        """Raise MXNet's error unless inputs and parameters are on the same context."""
        for parameter in list(self._parameters.values())[:1]:  # make_pool compares the others
            for array in inputs.values():
                check_context(parameter, array.context)

    def _signature(
        self, inputs: Mapping[str, Any], gradients: set[str], *, train: bool
    ) -> Signature:
        return Signature(
            tuple(
                (name, array.shape, np.dtype(array.dtype).name) for name, array in inputs.items()
            ),
            tuple(np.dtype(p.dtype).name for p in self._parameters.values()),
            frozenset(gradients),
            train,
            {name: outputs.division(array) for name, array in inputs.items()},
        )

    def _pool(
        self,
        signature: Signature,
        trained: set[str],
        inputs: Mapping[str, Any],
        current: Session,
    ) -> Optional[Pool]:
        if signature in self._pools:
            known = self._pools[signature]
            if known is None or not known.is_stale:
                self._pools.move_to_end(signature)
                return known
            self._pools.clear()  # the script has replaced a parameter's array
        try:
            untiled = any(not is_tiled(p) for p in self._parameters.values())
            if not signature.gradients and trained and untiled:
                # Training decides how the parameters are tiled; this graph follows.
                training = dataclasses.replace(signature, gradients=frozenset(trained), train=True)
                self._make(training, current)
            pool = self._make(signature, current)
            pool.prepare(inputs)
        except (ConfigError, TilingError):
            raise
        except (TofuError, MXNetError) as error:
            self._pools.pop(signature, None)  # where the warning is an error, the next one is, too
            self.warn_serial(str(error), current)
            self._pools[signature] = None
            return None
        return pool

    def _make(self, signature: Signature, current: Session) -> Pool:
        pool = self._pools.get(signature)
        if pool is None:
            first = not any(self._pools.values())
            pool = make_pool(
                self.name, self._symbol, self._parameters, signature, current, first=first
            )
            self._pools[signature] = pool
            while len(self._pools) > _MAX_POOLS:
                self._pools.popitem(last=False)
        return pool


def build_cache(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap HybridBlock._build_cache: it only inspects parameters, so do not gather them."""

    def _build_cache(self: Any, *args: Any) -> None:
        current = active()
        if self._backend or current is None:
            original(self, *args)
        else:
            with _core.Changed(current.state.depth, peeking=True):
                original(self, *args)

    return _build_cache


def call_cached_op(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap HybridBlock._call_cached_op: run the block partitioned if possible."""

    def _call_cached_op(self: Any, *args: Any) -> Any:
        current = active()
        if current is None or current.state.depth.checking:
            return original(self, *args)
        current.state.calls.free()
        with current.state.preparing:
            partitioned = _known_or_made(self, args, current)
        flat, structure = gluon_block._flatten(args, "input")
        arrays = [array for array in flat if array is not None]
        if not partitioned.wanted() and not any(map(outputs.is_divided, arrays)):
            partitioned.check_not_strict(current)
            return original(self, *args)
        reason = _reason_for_serial(self, args)
        if reason is not None:
            partitioned.warn_serial(reason, current)
            return partitioned.run_serially(lambda: original(self, *args))
        _check_structure(self, structure)
        results = partitioned.run(arrays, current, reach=partitioned.reach)
        if results is None:
            return partitioned.run_serially(lambda: original(self, *args))
        return gluon_block._regroup(results, self._out_format)

    return _call_cached_op


def _known_or_made(block: Any, args: Any, current: Session) -> PartitionedBlock:
    if block._cached_op is None:
        block._build_cache(*args)
    blocks = current.state.blocks
    partitioned: Optional[PartitionedBlock] = blocks.get(block)
    if partitioned is None or partitioned.cached_op is not block._cached_op:
        partitioned = blocks[block] = PartitionedBlock(block)
        partitioned.reach = of_hybridized(block, block._cached_graph[1])
        block.apply(untie)
    return partitioned


class _Scope(gluon_block._BlockScope):  # type: ignore[misc]
    """The name scope of a block that does not keep the block alive.

    MXNet's own scope does, so a block that the script drops stays until Python's cycle
    collector runs. Programs are too large for that.
    """

    @property
    def _block(self) -> Any:
        return self._reference()

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Copies and pickles get MXNet's own scope.
        state = {name: value for name, value in vars(self).items() if name != "_reference"}
        return object.__new__, (gluon_block._BlockScope,), {**state, "_block": self._block}


def untie(block: Any) -> None:
    """Let a block go when the script drops it."""
    scope = block._scope
    if type(scope) is gluon_block._BlockScope and vars(scope).get("_block") is block:
        del scope._block
        scope.__class__ = _Scope
        scope._reference = weakref.ref(block)


def _reason_for_serial(block: Any, args: Any) -> Optional[str]:
    if block._backend:
        return f"it is optimized for the backend {block._backend!r}"
    if block._callback:
        return "register_op_hook watches its inner operators"
    return None


def _check_structure(block: Any, found: Any) -> None:
    """Raise ValueError unless the arguments nest as those of the first call did."""

    def core(structure: Any) -> Any:
        # Trailing Nones may be left out.
        if isinstance(structure, list):
            while structure and structure[-1] == -1:
                structure = structure[:-1]
        return structure

    expected = block._in_format
    if found != expected and core(found) != core(expected):
        raise ValueError(
            f"{block.name}: arguments nested as {found}, expected {expected} as in the first "
            "call (0 stands for an array, -1 for None); call hybridize() again to change it"
        )
