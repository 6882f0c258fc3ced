"""MXNet's own executor on the parameters of a partitioned one.

It runs a symbol that cannot be partitioned, and computes the results of all operators that a
Monitor asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxnet import autograd

__all__ = ["on_copies", "on_parameters"]


def on_parameters(
    symbol: Any,
    context: Any,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, Any],
    requests: Mapping[str, str],
) -> Any:
    """Bind the symbol to the values and gradients that the script sees.

    Args:
        symbol: the symbol.
        context: the script's context.
        parameters: name -> parameter; ``data`` and ``grad`` are read and written.
        inputs: name -> array of the data and labels, with its gradient if it has one.
        requests: how the gradients of inputs are written, by name.
    """
    trained = {name: p for name, p in parameters.items() if p.grad_req != "null"}
    values = {**{name: p.data() for name, p in parameters.items()}, **inputs}
    gradients = {name: p.grad() for name, p in trained.items()}
    gradients.update({name: inputs[name].grad for name in requests})
    all_requests = {**{name: p.grad_req for name, p in trained.items()}, **requests}
    return _bind(symbol, context, values, gradients, all_requests)


def on_copies(
    symbol: Any,
    context: Any,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, Any],
    requests: Mapping[str, str],
) -> Any:
    """Bind the symbol to copies, so that nothing that it writes counts; see ``on_parameters``."""
    asked = {*requests, *(name for name, p in parameters.items() if p.grad_req != "null")}
    with autograd.pause():
        values = {name: p.data().copy() for name, p in parameters.items()}
        values.update({name: array.copy() for name, array in inputs.items()})
        gradients = {name: values[name].zeros_like() for name in asked}
    return _bind(symbol, context, values, gradients, dict.fromkeys(asked, "write"))


def _bind(
    symbol: Any,
    context: Any,
    values: Mapping[str, Any],
    gradients: Mapping[str, Any],
    requests: Mapping[str, str],
) -> Any:
    arguments = symbol.list_arguments()
    return symbol.bind(
        context,
        {name: values[name] for name in arguments},
        args_grad=dict(gradients),
        grad_req={name: requests.get(name, "null") for name in arguments},
        aux_states={name: values[name] for name in symbol.list_auxiliary_states()},
    )
