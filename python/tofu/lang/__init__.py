"""TDL, the language of operator descriptions (paper section 4.1), and its intervals.

Example:
    >>> import tofu
    >>> @tofu.op
    ... def positive_part(x):
    ...     return lambda *i: tofu.lang.maximum(x[i], 0)
    >>> positive_part.trace([(4, 5)], [(4, 5)]).outputs[0].variables
    ('i0', 'i1')

See docs/tdl.md for the language reference.
"""

from tofu.lang.adjoint import adjoint
from tofu.lang.description import Description, Rewrite, lookup, op, parse_attribute, registered
from tofu.lang.functions import (
    Max,
    Min,
    Opaque,
    Prod,
    Sum,
    apply,
    exp,
    like,
    log,
    maximum,
    minimum,
    sqrt,
    where,
)
from tofu.lang.tracing import Over, Reindex, Shape, Trace, Unread

__all__ = [
    "Description",
    "Max",
    "Min",
    "Opaque",
    "Over",
    "Prod",
    "Reindex",
    "Rewrite",
    "Shape",
    "Sum",
    "Trace",
    "Unread",
    "adjoint",
    "apply",
    "exp",
    "like",
    "log",
    "lookup",
    "maximum",
    "minimum",
    "op",
    "parse_attribute",
    "registered",
    "sqrt",
    "where",
]
