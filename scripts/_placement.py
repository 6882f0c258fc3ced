"""Trains a model with its layers on several devices, by stock MXNet's group2ctx (section 7.1).

tofu only says which layer goes where, as in the simulation (_simulated_systems.py). MXNet copies
tensors between the devices, and computes gradients where their layer is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def prepare(net: Any, batch: dict[str, Any], devices: int, optimizer: Any) -> Callable[[], float]:
    """A training step on one batch; waits, and returns the mean loss.

    Args:
        net: an initialized block that computes losses from the arrays of `batch`.
        batch: arrays by name, in the order of the block's arguments.
        devices: number of devices: GPUs, or CPU contexts if there are none.
        optimizer: of mxnet.optimizer, whose gradients are rescaled.
    """
    import mxnet as mx

    net(*batch.values())  # settles the parameters' shapes
    weights = {name: each.data() for name, each in net.collect_params().items()}
    kind = mx.gpu if mx.context.num_gpus() else mx.cpu
    contexts = [kind(number) for number in range(devices)]
    shapes = {name: array.shape for name, array in batch.items()}
    symbol, placed = _placed(net(*map(mx.sym.var, batch)), shapes, weights, contexts)
    arguments, states = set(symbol.list_arguments()), symbol.list_auxiliary_states()
    trained = [name for name in symbol.list_arguments() if name in weights]
    arrays = {
        name: array.copyto(placed[name])
        for name, array in {**batch, **weights}.items()
        if name in arguments
    }
    gradients = {name: mx.nd.zeros_like(arrays[name]) for name in trained}
    executor = symbol.bind(
        contexts[0],
        arrays,
        args_grad=gradients,
        grad_req={name: "write" if name in gradients else "null" for name in arguments},
        aux_states={name: weights[name].copyto(placed[name]) for name in states},
        group2ctx={str(context): context for context in contexts},
    )
    update = mx.optimizer.get_updater(optimizer)

    def step() -> float:
        (loss,) = executor.forward(is_train=True)
        executor.backward(mx.nd.ones_like(loss))
        for number, name in enumerate(trained):
            update(number, gradients[name], arrays[name])
        mean = float(loss.mean().asscalar())
        mx.nd.waitall()
        return mean

    return step


def _placed(
    symbol: Any, shapes: dict[str, Any], parameters: Any, contexts: list[Any]
) -> tuple[Any, dict[str, Any]]:
    """The symbol with the group of every node, and the groups of its variables."""
    import mxnet as mx
    from _simulated_systems import layer_devices

    document = json.loads(symbol.tojson())
    nodes = document["nodes"]
    # A state, such as a running mean, is on its operator's device, and has no turn of its own.
    trained = [name for name in symbol.list_arguments() if name in parameters]
    devices = layer_devices(nodes, trained, contexts)
    internals = symbol.get_internals()
    inferred = dict(zip(internals.list_outputs(), internals.infer_shape(**shapes)[1]))
    for node, context in zip(nodes, devices):
        node["attrs"] = {**node.get("attrs", {}), "__ctx_group__": str(context)}
        # MXNet does not infer the batch of a first state from readers on another device.
        if node["op"] == "_zeros":
            node["attrs"]["shape"] = str(inferred[f"{node['name']}_output"])
    where = {node["name"]: context for node, context in zip(nodes, devices)}
    return mx.sym.load_json(json.dumps(document)), where
