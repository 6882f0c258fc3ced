"""Labels for MXNet's profiler: which node of a partitioned graph an operator is.

The profiler knows operators by their kind. ``preload`` loads a small library before MXNet
(src/mxnet/profiler_labels.cc); then each node is pushed with a label of its own::

    labels = Labels(preload())
    extension.label_nodes(labels)
    labels.node("tofu.0.12::FullyConnected")     # Node("dense0_fwd@1", "FullyConnected", False)
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import os
import re
import sys
import weakref
from pathlib import Path
from typing import Any, Optional

from tofu.errors import InternalError, TofuError
from tofu.installation import MXNET

__all__ = ["Labels", "Node", "preload"]

_LIBRARY = "libtofu_profiler.so"
_LABEL = re.compile(r"^tofu\.(\d+)\.(\d+)::")
# A line of an executor's debug text, which lists its nodes in its own order.
_NODE = re.compile(r"^(?:Variable:(?P<variable>.*)|Op:(?P<op>[^,]*), Name=(?P<name>.*))$", re.M)


@dataclasses.dataclass(frozen=True)
class Node:
    """A node of an executor.

    Attributes:
        name: its name in the partitioned graph, such as "dense0_fwd@1/in0/fetch".
        op: its operator.
        is_of_variable: whether it fetches a variable, such as "data@0/publish0".
    """

    name: str
    op: str
    is_of_variable: bool


def preload() -> ctypes.CDLL:
    """Load the library. Raises InternalError after MXNet, whose profiler would not see it."""
    if MXNET in sys.modules:
        raise InternalError("tofu.trace.labels.preload: MXNet has been loaded already")
    spec = importlib.util.find_spec("tofu._core")
    origin = None if spec is None else spec.origin
    path = Path(origin or __file__).with_name(_LIBRARY)
    try:
        return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise TofuError(f"{path}: {error}; reinstall mxnet-tofu") from None


class Labels:
    """Labels nodes as they are pushed; see ``tofu.mx.extension.label_nodes``."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Find the profiler's functions. Raises TofuError if this MXNet has others."""
        from mxnet.libinfo import find_lib_path

        self._library = library
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._nodes: list[list[Optional[Node]]] = []
        if not library.TofuProfilerOpen(os.fsencode(find_lib_path()[0])):
            raise TofuError("this MXNet's profiler cannot be told which node it sees")

    def count(self, executor: Any) -> int:
        """The number of an executor's nodes."""
        return len(self._nodes[self._number(executor)])

    def begin(self, executor: Any, number: int) -> None:
        """Label the operators that this thread pushes from now on as a node."""
        self._library.TofuProfilerLabel(f"tofu.{self._number(executor)}.{number}".encode())

    def end(self) -> None:
        """Stop labelling."""
        self._library.TofuProfilerLabel(None)

    def node(self, event: str) -> Optional[Node]:
        """The node of a profiler's event; None for an operator outside of partitioned graphs."""
        match = _LABEL.match(event)
        return self._nodes[int(match[1])][int(match[2])] if match else None

    def _number(self, executor: Any) -> int:
        if executor not in self._numbers:
            self._numbers[executor] = len(self._nodes)
            self._nodes.append(_read(executor.debug_str()))
        return self._numbers[executor]


def _read(text: str) -> list[Optional[Node]]:
    """Read the nodes of an executor from its debug text; None for a variable."""
    matches = list(_NODE.finditer(text))
    variables = {match["variable"].partition("@")[0] for match in matches if match["op"] is None}
    return [
        None
        if match["op"] is None
        else Node(match["name"], match["op"], match["name"].partition("@")[0] in variables)
        for match in matches
    ]
