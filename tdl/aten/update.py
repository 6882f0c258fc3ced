"""The optimizer's update, for planning only: state is cut as its parameter is."""

from __future__ import annotations

from tofu.lang import apply, op


@op(name="tofu.update")
def update(parameter, gradient, *state):
    """The new parameter, element by element."""
    return lambda *i: apply("update", parameter[i], gradient[i], *(s[i] for s in state))
