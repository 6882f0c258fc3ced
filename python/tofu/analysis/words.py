"""Describes index variables in words: "ci" is "input channels".

A description may give words for its variables (``tofu.op(variables=...)``). The other variables
are named after the dimension that they run over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tofu.analysis.described import description_of
from tofu.analysis.table import row_for
from tofu.lang.description import Description
from tofu.lang.tracing import Shape

__all__ = ["place", "variable_words"]


def variable_words(
    op: str, attrs: Mapping[str, str], ins: Sequence[Shape], outs: Sequence[Shape]
) -> dict[str, str]:
    """Returns index variable -> words; empty if the operator has no description.

    >>> variable_words("FullyConnected", {"num_hidden": "8"}, [(4, 6), (8, 6)], [(4, 8)])
    {'b0': 'batch', 'o': 'output features', 'i': 'input features'}
    >>> variable_words("relu", {}, [(4, 6)], [(4, 6)])
    {'i0': 'dimension 0 of the output', 'i1': 'dimension 1 of the output'}
    """
    row = row_for(op, attrs, ins, outs)
    description = None if row is None else description_of(row["op"])
    if row is None or description is None:
        return {}
    words = {}
    for variable in row["vars"]:
        name = variable["name"]
        words[name] = description.words(name) or place(variable["extent"], description, len(outs))
    return words


def place(extent: Any, description: Description, outputs: int) -> str:
    """Names the dimension that a variable runs over, or else the number of its values.

    Args:
        extent: the variable's extent, as in a row of the strategy table.
        description: the operator's description.
        outputs: the number of the operator's outputs.
    """
    if not isinstance(extent, (list, tuple)):
        return f"{extent} values"
    kind, slot, dim = extent
    if kind == "output":
        return f"dimension {dim} of {f'output {slot}' if outputs > 1 else 'the output'}"
    return f"dimension {dim} of {description.input_name(slot)}"
