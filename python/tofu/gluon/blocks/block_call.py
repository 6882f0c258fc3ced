"""Wraps calls of blocks, which end with tofu's messages about them.

The outermost call tells of all blocks inside it. If some of them run partitioned while it or others
run eagerly, one warning says which share of its operators and parameters is partitioned.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import mxnet as mx
from mxnet import autograd
from mxnet.base import MXNetError
from mxnet.gluon import HybridBlock
from mxnet.gluon import block as gluon_block
from mxnet.ndarray import NDArray

from tofu.gluon.session import block_report
from tofu.gluon.session.session import Session, active
from tofu.gluon.training.parameter import is_tiled, shape_of
from tofu.mx.nnvm import symbol_text
from tofu.plans.report_level import in_short

__all__ = ["call"]

# Nodes of a recorded graph that are no operators of the script: variables, partitioned
# computations, and the copies that gather and divide.
_NOT_OPERATORS = frozenset(("null", "_CustomFunction", "_copy"))


def call(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Block.__call__: report the blocks that run partitioned, and those that run eagerly."""

    def __call__(self: Any, *args: Any) -> Any:  # noqa: N807 - replaces the method of that name
        current = active()
        if current is None:
            return original(self, *args)
        depth = current.state.depth
        touches = _uses_parameters_eagerly(self, args)
        depth.level += 1
        outputs: Any = None
        try:
            outputs = original(self, *args)
        except BaseException:
            touches = depth.touched = False  # the message names the script's reads, without advice
            raise
        finally:
            depth.level -= 1
            is_handled = id(self) in depth.handled  # by tofu.gluon.blocks.unhybridized
            depth.handled.discard(id(self))
            depth.touched = depth.touched or (touches and not is_handled)
            if not depth.level:
                _tell(self, args, outputs, current)
        return outputs

    return __call__


def _tell(block: Any, args: Any, outputs: Any, session: Session) -> None:
    state, depth = session.state, session.state.depth
    touched, depth.touched = depth.touched, False
    is_new = touched and block not in state.eager
    advice = _advice(block, session) if is_new else ""
    share = ""
    if depth.partitioned and (advice or depth.untraced):
        share = _share(block, args, outputs, depth.partitioned)
    block_report.tell_call(block.name or type(block).__name__, advice, share, session)
    if is_new:  # not after an error, which every call raises
        state.eager.add(block)


def _uses_parameters_eagerly(block: Any, args: Any) -> bool:
    if not block._reg_params or not args or getattr(block, "_active", False):
        return False
    if isinstance(block, gluon_block.SymbolBlock) or not isinstance(args[0], (NDArray, list)):
        return False
    return bool(
        autograd.is_recording() and any(p.grad_req != "null" for p in block._reg_params.values())
    )


def _advice(block: Any, session: Session) -> str:
    if isinstance(block, HybridBlock):
        return "call its hybridize() before training" + (
            "" if session.hybridize else ", or unset TOFU_HYBRIDIZE"
        )
    return "make it, or the part of it that trains, a HybridBlock"


def _share(block: Any, args: Any, outputs: Any, inside: Sequence[block_report.Partitioned]) -> str:
    """The share of a call's operators and of a block's parameters that is partitioned."""
    partitioned = sum(each.forward_operators for each in inside)
    eager = _recorded(outputs, args) - _recorded(args)
    parameters = [p for p in block.collect_params().values() if p._data is not None]
    sizes = {p: math.prod(shape_of(p)) for p in parameters}
    tiled = sum(size for p, size in sizes.items() if is_tiled(p))
    operators = f"{partitioned:,} of its {partitioned + eager:,}" if eager else "all of its"
    share = "all" if tiled == sum(sizes.values()) else f"{tiled / sum(sizes.values()):.1%}"
    return f"{operators} operators, {share} of its {in_short(sum(sizes.values()))} parameters"


def _recorded(*values: Any) -> int:
    """The operators of the script that autograd has recorded to compute the arrays in `values`."""
    symbols = []
    for head in _arrays(values):
        with contextlib.suppress(MXNetError):  # not recorded
            symbols.append(autograd.get_symbol(head))
    nodes = json.loads(symbol_text(mx.sym.Group(symbols)))["nodes"] if symbols else ()
    return sum(node["op"] not in _NOT_OPERATORS for node in nodes)


def _arrays(value: Any) -> Iterator[NDArray]:
    if isinstance(value, NDArray):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _arrays(each)
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()))
