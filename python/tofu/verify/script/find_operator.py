"""Runs a script partitioned for one step, then each operator of its graphs alone.

    python -m tofu.verify.script.find_operator OUT SCRIPT [ARGS]...

``MXNET_GRAPH_PASS=tofu`` is in the environment. OUT is a JSON list of the operators whose parts
do not give the whole (tofu.verify.script.wrong_operators), in the order in which they run, each
with its description.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

import mxnet  # noqa: F401  (first: this enables tofu)

from tofu.analysis.described import description_of
from tofu.analysis.table import described_name
from tofu.gluon import disable
from tofu.gluon.blocks.block import PartitionedBlock
from tofu.gluon.session.arrays import classic
from tofu.gluon.session.session import looking
from tofu.planner.compile_plan import Compiled
from tofu.plans.names import readable

from .record import Recorder, run_script
from .wrong_operators import wrong_operators

__all__ = ["main"]

_DTYPE = "float64"  # rounding is far smaller there than a fault


class _Graphs:
    """Collects a script's plans and the values of their variables."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._values: dict[str, Any] = {}

    def run(self, original: Any) -> Any:
        """Wrap PartitionedBlock.run: keep the values of its first call."""

        def run(block: Any, arrays: Sequence[Any], current: Any, **options: Any) -> Any:
            self._values = {
                name: classic(arrays[at]).asnumpy() for name, at in block.inputs
            } | block.whole_parameters()
            return original(block, arrays, current, **options)

        return run

    def note(self, compiled: Compiled) -> None:
        """Keep a plan."""
        graph = compiled.searched.table.graph
        self.found.setdefault(graph.hash, (compiled.searched, self._values))


def main() -> None:
    """Run the script and write the list; the process's entry point."""
    out, script, *args = sys.argv[1:]
    graphs = _Graphs()
    before = PartitionedBlock.run
    PartitionedBlock.run = graphs.run(before)  # type: ignore[method-assign]
    try:
        recorder = Recorder(1, _DTYPE, until_partitioned=True)

        def note(compiled: Compiled) -> None:
            recorder.graphs += 1
            graphs.note(compiled)

        with looking(compiled=note):
            run_script(recorder, script, args)
    finally:
        PartitionedBlock.run = before  # type: ignore[method-assign]
    disable()
    documents = []
    for plan, values in graphs.found.values():
        nodes = {node.name: node for node in plan.table.graph.nodes}
        for wrong in wrong_operators(plan, values):
            node = nodes[wrong.node]
            name = described_name(node.op, node.attrs)[0]
            description = description_of(name)
            documents.append(
                {
                    **dataclasses.asdict(wrong), "op": name, "label": readable(wrong.node),
                    "source": "" if description is None else description.location,
                }
            )  # fmt: skip
    with open(out, "w", encoding="utf-8") as file:
        json.dump(documents, file)


if __name__ == "__main__":
    main()
