"""A plan as few rules: pins with patterns, and exceptions by name (docs/plans.md, "Pins").

    *_weight=0,1       # 48 tensors, 1.5 GiB
    net_dense3_weight=-1,-1

The rules are of parameters; ``tofu plan --pins`` reads them, and chooses the cuts of the others.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Callable

from ..layers import updated_variables
from ..names import is_pattern, matching
from ..plan import Plan, TensorPlan, format_bytes

__all__ = ["render_rules"]

_LAST_WORD = re.compile(r"(?<=.)[._][^._]*$")
_NUMBER = re.compile(r"\d+")
_Rule = tuple[str, Sequence[TensorPlan]]  # a pattern or name, and the tensors that it cuts


def render_rules(plan: Plan) -> str:
    """The rules, one in a line, those of most bytes first."""
    updated = updated_variables({operator.node for operator in plan.operators})
    parameters = [tensor for tensor in plan.tensors if tensor.node in updated]
    names = dict.fromkeys(tensor.name for tensor in plan.tensors)
    rules = [
        rule
        for members in _grouped(parameters, _last_word).values()
        for rule in _fewest(members, names)
    ]
    rules.sort(key=lambda rule: -sum(tensor.bytes for tensor in rule[1]))
    return "".join(map(_line, rules))


def _line(rule: _Rule) -> str:
    name, tensors = rule
    text = f"{name}={','.join(map(str, tensors[0].cuts))}"
    if not is_pattern(name):
        return f"{text}\n"
    count, size = len(tensors), sum(tensor.bytes for tensor in tensors)
    return f"{text}  # {count} tensor{'s' * (count > 1)}, {format_bytes(size)}\n"


def _fewest(members: Sequence[TensorPlan], names: Collection[str]) -> list[_Rule]:
    """The rules of tensors whose names end alike: one pattern, or one for each kind of name."""
    together = list(_rules(f"*{_last_word(members[0])}", members, names))
    apart = [
        rule
        for pattern, alike in _grouped(members, _numberless).items()
        for rule in _rules(str(pattern), alike, names)
    ]
    return min(together, apart, key=len)


def _rules(pattern: str, members: Sequence[TensorPlan], names: Collection[str]) -> Iterator[_Rule]:
    """A pattern with the commonest cuts, then the other names; names alone if it fits more."""
    ((usual, count),) = Counter(tensor.cuts for tensor in members).most_common(1)
    others = list(members)
    if count > 1 and set(matching(pattern, names)) == {tensor.name for tensor in members}:
        yield pattern, [tensor for tensor in members if tensor.cuts == usual]
        others = [tensor for tensor in members if tensor.cuts != usual]
    for tensor in others:
        yield tensor.name, [tensor]


def _grouped(
    tensors: Sequence[TensorPlan], key: Callable[[TensorPlan], Hashable]
) -> dict[Hashable, list[TensorPlan]]:
    groups = defaultdict(list)
    for tensor in tensors:
        groups[key(tensor)].append(tensor)
    return groups


def _last_word(tensor: TensorPlan) -> str:
    found = _LAST_WORD.search(tensor.name)
    return found[0] if found else tensor.name


def _numberless(tensor: TensorPlan) -> str:
    return _NUMBER.sub("*", tensor.name)
