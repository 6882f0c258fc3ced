"""NumPy operators, and their gradients, in terms of others that workers can share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from tofu.dtypes import dtype_name
from tofu.mx.nnvm import Entry, Node

from .registry import AFTER, BEFORE, Builder, flag, number

__all__: list[str] = []

_SPECTRAL = ("0", "2")  # values of `flag`: norms of matrices by their singular values


@BEFORE.lowering("_npi_norm", reason="its hidden outputs have no elements", essential=True)
def norm(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The root of a sum of powers."""
    order = number(node, "ord", 2.0)
    if node.attrs.get("flag") in _SPECTRAL or order <= 0:
        return None
    (data,) = node.inputs
    if order == 2:
        powers = build.op("_npi_square", data)
    else:
        powers = build.op("_npi_absolute", data)
        if order != 1:
            powers = build.op("_npi_power_scalar", powers, scalar=order, is_int=False)
    keepdims = flag(node, "keepdims")
    total = build.op("_np_sum", powers, axis=node.attrs.get("axis"), keepdims=keepdims)
    if order == 1:
        return [total]
    if order == 2:
        return [build.op("_npi_sqrt", total)]
    return [build.op("_npi_power_scalar", total, scalar=1.0 / order, is_int=False)]


@AFTER.lowering("_backward_npi_einsum", reason="keeps its workspace as state")
def einsum(node: Node, build: Builder) -> Optional[Sequence[Entry]]:
    """The gradient of each factor: the einsum of the head gradient and the other factors.

    Nodes with diagonals or stretched dimensions stay unchanged.
    """
    head, *factors = node.inputs
    text = node.attrs["subscripts"].replace(" ", "")
    names = _names(text, [len(factor.shape) for factor in factors])
    if names is None:
        return None
    *terms, out = names
    sizes: dict[str, int] = {}
    for term, factor in zip(terms, factors):
        for letter, size in zip(term, factor.shape):
            if sizes.setdefault(letter, size) != size:
                return None
    gradients = []
    for k, own_term in enumerate(terms):
        others = [(t, f) for i, (t, f) in enumerate(zip(terms, factors)) if i != k]
        operands = [(out, head), *others]
        # An index summed over in this factor alone has the same gradient everywhere.
        used = {letter for term, _ in operands for letter in term}
        lost = [letter for letter in own_term if letter not in used]
        if lost:
            shape = tuple(sizes[letter] for letter in lost)
            ones = build.op("_npi_ones", shape=shape, dtype=dtype_name(head.dtype))
            operands.append(("".join(lost), ones))
        gradients.append(
            build.op(
                "_npi_einsum",
                *(entry for _, entry in operands),
                subscripts=",".join(term for term, _ in operands) + "->" + own_term,
                num_args=len(operands),
                optimize=node.attrs.get("optimize"),
            )
        )
    return gradients


def _names(text: str, ranks: Sequence[int]) -> Optional[list[str]]:
    """A letter for every dimension of the factors and the result; None for diagonals."""
    before, arrow, after = text.partition("->")
    terms = before.split(",")
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks)]
    dots = "".join(free[: max(n for n, t in zip([0, *hidden], ["...", *terms]) if "..." in t)])
    if not arrow:
        letters = before.replace(",", "").replace("...", "")
        once = sorted(c for c in set(letters) if letters.count(c) == 1)
        after = ("..." if dots else "") + "".join(once)
    named = [
        term.replace("...", dots[len(dots) - n :] if n else "") for term, n in zip(terms, hidden)
    ]
    named.append(after.replace("...", dots))
    return named if all(len(set(term)) == len(term) for term in named) else None
