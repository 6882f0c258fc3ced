"""Rows of a table, and the table's gradient."""

from __future__ import annotations

from tofu.lang import Opaque, Over, Sum, op
from tofu.tdl._shapes import names


@op(name="aten.embedding.default")
def embedding(weight, indices):
    """The rows that indices name."""
    row = Opaque("Row")
    at = names(indices.ndim)
    return Over([*at, "d"], lambda *i: row(indices[i[:-1]], weight[:, i[-1]]))


@op(name="aten.embedding_dense_backward.default")
def embedding_backward(grad, indices):
    """The sum of the rows of the gradient that belong to each row of the table."""
    scatter = Opaque("Scatter")
    at = names(indices.ndim)

    def element(v, d):
        def term(*i):
            return scatter(grad[(*i, d)], indices[i])[v]

        return Sum(Over(at, term)) if at else term()

    return element
