"""Explains the cuts of a tensor or the splits of an operator: the cost of every other choice.

``_core.Plan.explain`` counts (docs/formats.md, "Explanation"); this module puts it in words::

    for section in explain(problem, plan, "fc1_weight").sections:
        print(section.title, section.reason)
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, Optional, Union

from tofu import _core
from tofu.analysis.words import variable_words
from tofu.dtypes import dtype_name
from tofu.errors import PlanError
from tofu.tables import table

from ..names import readable
from ..parts import Parts
from ..plan import REPLICATED, TERMS, TERMS_NAME, Plan, read_cuts
from ..problem import Problem
from .text import unequal_text

__all__ = ["Explanation", "Section", "explain"]

FORMAT = "tofu-explanation"
_CHOSEN = "<-"


@dataclasses.dataclass(frozen=True)
class Section:
    """A step of a tensor or an operator: its choices, and why the plan took one."""

    title: str
    reason: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The explanation of one name.

    Attributes:
        document: the passes' counts.
        sections: the same in words and tables.
    """

    document: Mapping[str, Any]
    sections: tuple[Section, ...]

    def to_text(self) -> str:
        """The sections for a terminal."""
        lines: list[str] = []
        for section in self.sections:
            lines += [section.title, f"  {section.reason}", ""]
            lines += [f"  {line}".rstrip() for line in table(section.header, section.rows)]
            lines.append("")
        return "\n".join(lines)


def explain(problem: Problem, plan: Plan, name: str) -> Explanation:
    """Explain a tensor or operator of a plan.

    Args:
        problem: the graph and strategies of the search.
        plan: its plan.
        name: a node's name, or NAME[1] for its second output.

    Raises:
        PlanError: the graph has no such name.
    """
    text = plan.in_graph(problem.table).explain(name)
    operator = json.loads(text).get("operator") or {}
    named = [node for node in problem.graph.nodes if node.name == operator.get("name")]
    return read(text, _words(named[0]) if named else {}, plan.parts)


def _words(node: _core.Node) -> dict[str, str]:
    """Words for the index variables of an operator."""
    ins, outs = ([shape for shape, _ in side] for side in (node.inputs, node.outputs))
    return variable_words(node.op, node.attrs, ins, outs)


def read(
    text: str, words: Optional[Mapping[str, str]] = None, parts: Optional[Parts] = None
) -> Explanation:
    """Read an explanation from the passes' document.

    Args:
        text: the document.
        words: words for the operator's index variables.
        parts: the plan's, if they are not equal.
    """
    document = json.loads(text)
    if document.get("format") != FORMAT:
        raise PlanError(f'explanation: no "format": "{FORMAT}"; build tofu again')
    total = document["total_bytes"]
    sections = list(_tensor_sections(document["tensor"], total, parts))
    if document["operator"] is not None:
        sections += _operator_sections(document["operator"], words or {})
    return Explanation(document, tuple(sections))


def _tensor_sections(
    tensor: Mapping[str, Any], total: int, parts: Optional[Parts]
) -> Iterator[Section]:
    shape = "x".join(map(str, tensor["shape"])) or "scalar"
    tied = tensor["tied"] - 1
    parts = parts or Parts(step["parts"] for step in tensor["steps"])
    for number, step in enumerate(tensor["steps"], 1):
        title = (
            f"Tensor {readable(tensor['name'])} ({shape} {dtype_name(tensor['dtype'])}), "
            f"{_step(number, tensor['steps'])}: {_cut(step['chosen'])}"
        )
        reason = _tensor_reason(step, total)
        reason += _uneven(tensor, number, parts)
        if tied:
            reason += f" {tied:,} more tensor{'s are' if tied > 1 else ' is'} cut alike with it."
        yield Section(
            title,
            reason,
            ("cut", "", "plan's bytes: its operators choose again", "all choose this step again"),
            tuple(
                (
                    _cut(way["cut"]),
                    _CHOSEN if way["cut"] == step["chosen"] else "",
                    _change(way["local_bytes"], total),
                    _change(way["searched_bytes"], total),
                )
                for way in step["alternatives"]
            ),
        )


def _uneven(tensor: Mapping[str, Any], number: int, parts: Parts) -> str:
    """A sentence about unequal pieces after these steps; "" if all are equal."""
    cuts = read_cuts([step["chosen"] for step in tensor["steps"][:number]])
    if cuts[-1] < 0:
        return ""
    bounds = parts.bounds(tensor["shape"], cuts)[cuts[-1]]
    sizes = unequal_text(tensor["shape"][cuts[-1]], bounds)
    return f" Its pieces then hold {sizes}." if sizes else ""


def _tensor_reason(step: Mapping[str, Any], total: int) -> str:
    """The reason for the plan's cut: the cost of the best other one."""
    chosen = step["chosen"]
    others = [
        way for way in step["alternatives"] if way["cut"] != chosen and way["cut"] != REPLICATED
    ]
    whole = [way for way in step["alternatives"] if way["cut"] == REPLICATED != chosen]
    if chosen == REPLICATED and not others:
        return "No dimension has an element for each part of this step, so it stays whole."
    if not others:
        text = "No other dimension is long enough for this step to cut it evenly."
    else:
        best = min(others, key=lambda way: int(way["searched_bytes"]))
        more = best["searched_bytes"] - total
        if more > 0:
            text = (
                f"The next best, {_cut(best['cut'])}, would communicate {more:,} bytes more, "
                "even with everything else in this step adapted."
            )
        elif more == 0:
            text = (
                f"{_cut(best['cut']).capitalize()} would communicate the same, with everything "
                "else in this step adapted; the search keeps the first of equal plans."
            )
        else:
            text = (
                f"{_cut(best['cut']).capitalize()} would communicate {-more:,} bytes less; a pin, "
                "the search mode or the time limit kept the search from it."
            )
    if whole and min(way["searched_bytes"] for way in whole) < total:
        less = total - min(way["searched_bytes"] for way in whole)
        text += (
            f" Leaving it whole would communicate {less:,} bytes less, with a copy on every "
            "worker (see --allow-replication)."
        )
    return text


def _operator_sections(operator: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[Section]:
    def named(variable: object) -> str:
        return _variable(variable, words)

    for number, step in enumerate(operator["steps"], 1):
        title = (
            f"Operator {readable(operator['name'])} ({operator['op']}), "
            f"{_step(number, operator['steps'])}: {named(step['chosen'])}"
        )
        ways = step["strategies"]
        slots = [readable(slot["tensor"]) for slot in (*ways[0]["inputs"], *ways[0]["outputs"])]
        header = ("variable", "", "bytes", *_distinct(slots))
        yield Section(
            title,
            _operator_reason(step, named),
            header,
            tuple(_strategy_row(way, step, named) for way in ways),
        )


_Named = Callable[[object], str]


def _strategy_row(
    way: Mapping[str, Any], step: Mapping[str, Any], named: _Named
) -> tuple[str, ...]:
    return (
        named(way["variable"]),
        _CHOSEN if way["variable"] == step["chosen"] else "",
        f"{way['bytes']:,}",
        *(f"{slot['bytes']:,}" for slot in way["inputs"]),
        *(f"{slot['bytes']:,} ({slot['combine']})" for slot in way["outputs"]),
    )


def _operator_reason(step: Mapping[str, Any], named: _Named) -> str:
    ways = {way["variable"]: way for way in step["strategies"]}
    chosen = ways[step["chosen"]]
    others = [way for name, way in ways.items() if name not in (step["chosen"], None)]
    if not others:
        return "There is no other way to split it."
    best = min(others, key=lambda way: int(way["bytes"]))
    more = best["bytes"] - chosen["bytes"]
    prefix = f"With the tensors cut like this it fetches {chosen['bytes']:,} bytes;"
    if more > 0:
        return f"{prefix} the next best, {named(best['variable'])}, would fetch {more:,} more."
    if more == 0:
        return f"{prefix} {named(best['variable'])} would fetch the same."
    return (
        f"{prefix} {named(best['variable'])} would fetch {-more:,} less; the search mode "
        "or the time limit kept the search from it."
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Column names; numbers distinguish several slots of one name."""
    return [name if names.count(name) == 1 else f"{name} #{i}" for i, name in enumerate(names, 1)]


def _step(number: int, steps: Sequence[Mapping[str, Any]]) -> str:
    return f"step {number} of {len(steps)}, in {steps[number - 1]['parts']} parts"


def _cut(cut: Union[int, str]) -> str:
    names = {REPLICATED: "whole", TERMS: "terms of a sum"}
    return names.get(read_cuts([cut])[0], f"dimension {cut}")


def _variable(name: object, words: Mapping[str, str]) -> str:
    if name is None:
        return "whole"
    if name == TERMS_NAME:
        return "split along the terms of a sum"
    meaning = words.get(str(name))
    return f"split along {name}" + (f" ({meaning})" if meaning else "")


def _change(size: int, total: int) -> str:
    difference = size - total
    return f"{size:,}" + (f" ({difference:+,})" if difference else "")
