"""Runs a script partitioned for some steps, then each operator of its graphs alone.

    python -m tofu.verify.script.find_operator OUT STEPS DTYPE SCRIPT [ARGS]...

``MXNET_GRAPH_PASS=tofu`` is in the environment. OUT is a JSON list of the operators whose parts
do not give the whole (tofu.verify.script.wrong_operators), in the order in which they run, each
with its description. With DTYPE "float32~" it has the first operator, if any, that inputs one
rounding apart change by more than rounding in the last step.
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

from .record import ROUNDED, Recorder, rounded, run_script
from .wrong_operators import first_sensitive, wrong_operators

__all__ = ["main"]


class _Graphs:
    """Collects a script's plans and the values of their variables in the last call."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {}
        self._running: Any = None
        self._plans: dict[int, list[Any]] = {}

    def run(self, original: Any) -> Any:
        """Wrap PartitionedBlock.run: keep the values of its calls."""

        def run(block: Any, arrays: Sequence[Any], current: Any, **options: Any) -> Any:
            inputs = {name: classic(arrays[at]) for name, at in block.inputs}
            values, changed = (
                {name: array.asnumpy() for name, array in feed.items()} | block.whole_parameters()
                for feed in (inputs, {name: rounded(array) for name, array in inputs.items()})
            )
            self._running = block
            results = original(block, arrays, current, **options)
            for plan in self._plans.get(id(block), ()):
                self.found[plan.table.graph.hash] = plan, values, changed
            return results

        return run

    def note(self, compiled: Compiled) -> None:
        """Keep a plan of the block that is running."""
        self._plans.setdefault(id(self._running), []).append(compiled.searched)


def main() -> None:
    """Run the script and write the list; the process's entry point."""
    out, steps, dtype, script, *args = sys.argv[1:]
    graphs = _Graphs()
    before = PartitionedBlock.run
    PartitionedBlock.run = graphs.run(before)  # type: ignore[method-assign]
    try:
        recorder = Recorder(int(steps), dtype.rstrip(ROUNDED), until_partitioned=True)

        def note(compiled: Compiled) -> None:
            recorder.graphs += 1
            graphs.note(compiled)

        with looking(compiled=note):
            run_script(recorder, script, args)
    finally:
        PartitionedBlock.run = before  # type: ignore[method-assign]
    disable()
    documents: list[dict[str, Any]] = []
    for plan, values, changed in graphs.found.values():
        if dtype.endswith(ROUNDED):
            sensitive = first_sensitive(plan, values, changed)
            if sensitive is not None and not documents:
                node, op, change = sensitive
                documents.append({"label": readable(node), "op": op, "difference": change})
            continue
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
